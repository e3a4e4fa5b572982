"""`caraway secrets rotate`, which works on Postgres and the key file themselves."""

from caraway.apps.cli.database import DatabaseOptions, opened, operator
from caraway.apps.cli.options import command
from caraway.apps.cli.output import err
from caraway.process.secrets.keyring import open_keyring
from caraway.process.settings.settings import load_settings
from caraway.state.audit import Act, AuditLog
from caraway.state.secrets import SecretStore


@command
def rotate(database: DatabaseOptions) -> None:
    """Make a new key and encrypt all secrets with it. The old key stays in the key file.

    Copy the key file to all machines of the deployment at once.
    """
    with opened(database, changes=True) as engine:
        audit = AuditLog(engine)
        number = audit.begin(Act(account=operator(), token_id="", action="rotate_secrets", branch=""))
        store = SecretStore(engine, open_keyring(load_settings(database.data).key_file))
        count = store.rotate()
        audit.end(number, "done")
        err.print(f"encrypted {count} secrets with a new key", markup=False)
