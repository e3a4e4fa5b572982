"""How far sources are read: checkpoints in Postgres. Marks on the topics show which later rows were written."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.cluster.leases import attempt
from caraway.state.tables import source_positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A moment at which all rows that were read of a source are durable.

    Attributes:
        read: The offset of the next record of each partition of the source.
        written: The ends of the topics that the source writes to, by topic and partition. All that was written of
            records before `read` stands before these ends, and all that is written of later ones behind them.
    """

    read: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


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
        return Checkpoint(read=row.read, written=written)

    def save(self, source: str, token: int, checkpoint: Checkpoint) -> bool:
        """Replace the checkpoint of a source, and return whether that was possible: False if a later owner saved one.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        values = {"token": token, "read": dict(checkpoint.read), "written": dict(checkpoint.written)}
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
        saved = attempt(self._engine, lambda c: c.execute(change).scalar(), what=f"save the position of {source}")
        return saved is not None

    def forget(self, sources: Collection[str]) -> None:
        """Remove the checkpoints of sources that are gone for good.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        removal = sa.delete(source_positions).where(source_positions.c.source.in_(sources))
        if sources:
            attempt(self._engine, lambda c: c.execute(removal), what="forget positions of sources")
