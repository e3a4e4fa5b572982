"""The migration of the schema to this version."""

from importlib.resources import as_file, files

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from caraway.state.database import TIMEOUT_SECONDS, connect, retry_outages

# The key of the advisory lock in Postgres: any number will do that no other program locks in this database. These are
# the bytes of "caraway".
LOCK_KEY = int.from_bytes(b"caraway")


def migrate(url: str) -> None:
    """Bring the schema to the newest version; of several processes at once, one does it and the others wait."""
    engine = connect(url)
    try:
        retry_outages(
            lambda: _upgrade(engine), what="set up the tables", timeout_seconds=TIMEOUT_SECONDS, engine=engine
        )
    finally:
        engine.dispose()


def is_migrated(engine: sa.Engine) -> bool:
    """Return whether the schema is that of this version."""
    with as_file(files("caraway.state") / "migrations") as folder, engine.connect() as connection:
        newest = ScriptDirectory.from_config(_config(str(folder))).get_current_head()
        return MigrationContext.configure(connection).get_current_revision() == newest


def _upgrade(engine: sa.Engine) -> None:
    with as_file(files("caraway.state") / "migrations") as folder, engine.begin() as connection:
        # The lock lasts until the transaction ends. So a crash in the middle releases it, and leaves no half of a
        # change.
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
        config = _config(str(folder))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _config(folder: str) -> Config:
    config = Config()
    # Alembic reads % as the start of an interpolation.
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
