"""The migration of the schema to this version."""

import sqlalchemy as sa

from caraway.state.database import TIMEOUT_SECONDS, connect, retry_outages

# The key of the advisory lock in Postgres: any number will do that no other program locks in this database. These are
# the bytes of "caraway".
LOCK_KEY = int.from_bytes(b"caraway")
NEWEST = "0001"
"""The newest revision of the schema: the last of `caraway.state.migrations.versions`."""


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
    with engine.connect() as connection:
        return _revision(connection) == NEWEST


def _upgrade(engine: sa.Engine) -> None:
    if is_migrated(engine):
        return
    # A server whose tables are there, as at each start but the first, doesn't import Alembic, which takes a fifth of a
    # second.
    from caraway.state.upgrading import upgrade  # noqa: PLC0415 (see above)

    with engine.begin() as connection:
        # The lock lasts until the transaction ends. So a crash in the middle releases the lock, and leaves no
        # incomplete change.
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
        upgrade(connection, NEWEST)


def _revision(connection: sa.Connection) -> str | None:
    if connection.scalar(sa.text("SELECT to_regclass('alembic_version')")) is None:
        return None
    revision: str | None = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    return revision
