"""`caraway secrets rotate`, which works on Postgres and the key file themselves."""

from caraway.cli.database import DatabaseOption, opened, operator
from caraway.cli.output import DataOption, err, plain_errors
from caraway.config.settings import load_settings
from caraway.secrets.keyring import open_keyring
from caraway.secrets.store import SecretStore
from caraway.state.audit import Act, AuditLog


def rotate(database: DatabaseOption = None, data: DataOption = None) -> None:
    """Make a new key and encrypt all secrets with it. The old key stays in the key file.

    Copy the key file to all machines of the deployment at once.
    """
    with plain_errors(), opened(database, data) as engine:
        audit = AuditLog(engine)
        number = audit.begin(Act(account=operator(), token_id="", action="rotate_secrets", branch=""))
        store = SecretStore(engine, open_keyring(load_settings(data).key_file))
        count = store.rotate()
        audit.end(number, "done")
        err.print(f"encrypted {count} secrets with a new key", markup=False)
