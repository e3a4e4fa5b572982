"""How far sources are read: checkpoints in Postgres. Marks on the topics show which later rows were written."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.state.ownership.leases import attempt
from caraway.state.tables import source_items, source_positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A moment at which all rows that were read of a source are durable.

    Attributes:
        position: How far the source is read (`caraway.dataplane.sources.reader`).
        written: The ends of the topics that the source writes to, by topic and partition. All that was written of
            rows before `position` stands before these ends, and all that is written of later ones behind them.
        closed: True if the source has ended: it is bounded, and nothing came for its time of idleness.
    """

    position: Mapping[str, Any] = field(default_factory=dict)
    written: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    closed: bool = False


class SourcePositions:
    """Reads and writes checkpoints. Thread safe."""

    def __init__(self, engine: sa.Engine) -> None:
        """Work through `engine` (`caraway.state.database.connect`)."""
        self._engine = engine

    def load(self, source: str) -> Checkpoint | None:
        """Return the last checkpoint of a source; None if it was never read.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        query = sa.select(source_positions).where(source_positions.c.source == source)
        row = attempt(self._engine, lambda c: c.execute(query).one_or_none(), what=f"read the position of {source}")
        if row is None:
            return None
        # The column is JSON, whose keys are texts, so the numbers of partitions are made from texts.
        written = {topic: {int(p): end for p, end in ends.items()} for topic, ends in row.written.items()}
        return Checkpoint(position=row.position, written=written, closed=row.closed)

    def items(self, source: str) -> dict[str, bytes]:
        """Return the items that the reader of a source remembers.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        query = sa.select(source_items.c.item, source_items.c.value).where(source_items.c.source == source)
        rows = attempt(self._engine, lambda c: c.execute(query).all(), what=f"read what is known of {source}")
        return {item: bytes(value) for item, value in rows}

    def item(self, item: str, sources: Collection[str]) -> dict[str, bytes]:
        """Return an item of those of the sources that have it.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        query = sa.select(source_items.c.source, source_items.c.value).where(
            source_items.c.item == item, source_items.c.source.in_(sources)
        )
        rows = attempt(self._engine, lambda c: c.execute(query).all(), what="read the definitions of sources")
        return {source: bytes(value) for source, value in rows}

    def receive(self, source: str, item: str, value: bytes) -> bool:
        """Replace an item of a source whose rows come by another way than its reader; return whether it is closed.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        closed = sa.select(source_positions.c.closed).where(source_positions.c.source == source)

        def receive(connection: sa.Connection) -> bool:
            _change_items(connection, source, {item: value})
            return bool(connection.execute(closed).scalar())

        return attempt(self._engine, receive, what=f"note that rows came for {source}")

    def save(self, source: str, token: int, checkpoint: Checkpoint, items: Mapping[str, bytes | None]) -> bool:
        """Replace the checkpoint of a source, and change its items; None as a value removes an item.

        Return whether that was possible: False if a later owner saved a checkpoint. Then nothing is changed.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        values = {
            "token": token,
            "position": dict(checkpoint.position),
            "written": dict(checkpoint.written),
            "closed": checkpoint.closed,
        }
        change = (
            insert(source_positions)
            .values(source=source, **values)
            .on_conflict_do_update(
                index_elements=[source_positions.c.source],
                set_={**values, "saved_at": sa.func.clock_timestamp()},
                where=source_positions.c.token <= token,
            )
            .returning(source_positions.c.token)
        )

        def save(connection: sa.Connection) -> bool:
            if connection.execute(change).scalar() is None:
                return False
            _change_items(connection, source, items)
            return True

        return attempt(self._engine, save, what=f"save the position of {source}")

    def forget(self, sources: Collection[str]) -> None:
        """Remove the checkpoints of sources that are gone for good.

        Raises `UnavailableError` if Postgres doesn't answer.
        """

        def forget(connection: sa.Connection) -> None:
            for table in (source_items, source_positions):
                connection.execute(sa.delete(table).where(table.c.source.in_(sources)))

        if sources:
            attempt(self._engine, forget, what="forget positions of sources")


def _change_items(connection: sa.Connection, source: str, items: Mapping[str, bytes | None]) -> None:
    if gone := [item for item, value in items.items() if value is None]:
        is_gone = (source_items.c.source == source) & source_items.c.item.in_(gone)
        connection.execute(sa.delete(source_items).where(is_gone))
    if there := [
        {"source": source, "item": item, "value": value} for item, value in items.items() if value is not None
    ]:
        put = insert(source_items)
        connection.execute(
            put.on_conflict_do_update(
                index_elements=[source_items.c.source, source_items.c.item], set_={"value": put.excluded.value}
            ),
            there,
        )
