"""The records of erased keys that topics still have to get."""

from collections.abc import Collection

import sqlalchemy as sa

from caraway.graph.plan.model import GraphPlan, definition_of
from caraway.state.tables import erasures

# The key of an advisory lock in Postgres: any number that no other lock uses.
ERASURES_LOCK = int.from_bytes(b"erasure")


def lock_erasures(connection: sa.Connection) -> None:
    """Wait for the lock of the erasures; it is held until the transaction ends.

    Under this lock erasures get their numbers in the order in which they commit, so a reader that has read up to a
    number has missed none.
    """
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ERASURES_LOCK)))


def newest_erasure(connection: sa.Connection) -> int:
    """Return the number of the newest erasure, 0 if there is none; no other is added until the transaction ends."""
    lock_erasures(connection)
    return connection.execute(sa.select(sa.func.max(erasures.c.id))).scalar() or 0


def announce_on_new(connection: sa.Connection, plan: GraphPlan, created: Collection[str]) -> None:
    """Have servers write the record of each erased key again if a topic or an index was created for its dataset.

    Args:
        connection: The transaction that creates them.
        plan: The plan of the commit, with the names of the generations.
        created: The names of the new topics and indexes.
    """
    topics = {topic.name for topic in plan.topics if topic.name in created}
    topics |= {index.topic for index in plan.indexes if index.asset.hex() in created}
    if topics:
        lock_erasures(connection)
        of_them = erasures.c.definition.in_({definition_of(topic) for topic in topics})
        connection.execute(
            sa.update(erasures).where(of_them, erasures.c.recorded_at.is_not(None)).values(recorded_at=None)
        )
