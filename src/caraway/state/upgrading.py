"""The upgrade of the schema by Alembic, over a connection that holds the lock of upgrades."""

from importlib.resources import as_file, files

import sqlalchemy as sa
from alembic import command
from alembic.config import Config


def upgrade(connection: sa.Connection, revision: str) -> None:
    """Bring the schema to a revision, in the transaction of a connection."""
    with as_file(files("caraway.state") / "migrations") as folder:
        config = Config()
        # Alembic reads % as the start of an interpolation, and %% as a % in the path.
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
