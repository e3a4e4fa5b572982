"""How far sinks are written, in Postgres."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.state.ownership.leases import attempt
from caraway.state.tables import sink_positions


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPosition:
    """A moment at which all changes before some offsets are written.

    Attributes:
        branch: The branch that the sink was made for first.
        written: The offset behind the last record of the dataset's topic whose change is written, by partition.
        until: The offsets at which the batch that is being written ends; empty if it may end anywhere. A batch with
            deletions has to be the same when it is written again: a deletion and an insert that are merged have only
            the position of the insert, so they must be merged each time or never.
        epochs: The epochs in which the records before `written` were written to the topic, where they are known.
        age_s: How many seconds ago the position was saved.
    """

    branch: str
    written: Mapping[int, int] = field(default_factory=dict)
    until: Mapping[int, int] = field(default_factory=dict)
    epochs: Mapping[int, int] = field(default_factory=dict)
    age_s: float = 0.0


class SinkPositions:
    """Reads and writes positions. Thread safe. All methods raise `UnavailableError` if Postgres doesn't answer."""

    def __init__(self, engine: sa.Engine) -> None:
        """Work through `engine` (`caraway.state.database.connect`)."""
        self._engine = engine

    def load(self, sink: str) -> SinkPosition | None:
        """Return the last position of a sink; None if it was never written."""
        age = sa.func.extract("epoch", sa.func.clock_timestamp() - sink_positions.c.saved_at).label("age")
        query = sa.select(sink_positions, age).where(sink_positions.c.sink == sink)
        row = attempt(self._engine, lambda c: c.execute(query).one_or_none(), what=f"read the position of {sink}")
        if row is None:
            return None
        return SinkPosition(
            branch=row.branch,
            written=_numbered(row.written),
            until=_numbered(row.until),
            epochs=_numbered(row.epochs),
            age_s=float(row.age),
        )

    def save(self, sink: str, token: int, position: SinkPosition) -> bool:
        """Replace the position of a sink, and return whether that was possible: False if a later owner saved one."""
        values = {
            "token": token,
            "branch": position.branch,
            # JSON allows only strings as keys.
            "written": {str(partition): offset for partition, offset in position.written.items()},
            "until": {str(partition): offset for partition, offset in position.until.items()},
            "epochs": {str(partition): epoch for partition, epoch in position.epochs.items()},
        }
        change = (
            insert(sink_positions)
            .values(sink=sink, **values)
            .on_conflict_do_update(
                index_elements=[sink_positions.c.sink],
                set_={**values, "saved_at": sa.func.clock_timestamp()},
                where=sink_positions.c.token <= token,
            )
            .returning(sink_positions.c.token)
        )
        saved = attempt(self._engine, lambda c: c.execute(change).scalar(), what=f"save the position of {sink}")
        return saved is not None

    def forget(self, sinks: Collection[str]) -> None:
        """Remove the positions of sinks that are gone for good."""
        removal = sa.delete(sink_positions).where(sink_positions.c.sink.in_(sinks))
        if sinks:
            attempt(self._engine, lambda c: c.execute(removal), what="forget positions of sinks")


def _numbered(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in offsets.items()}
