"""A dataset in memory that the worker of a source fills from a real database, and whose process can be killed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sources.cdc.batch import COMMITTED_AT
from caraway.dataplane.sources.cdc.reader import CaptureReader
from caraway.dataplane.sources.reader import LiveRow, Position, SourceBatch, SourceContext
from caraway.dataplane.sources.worker import SourceWorker
from caraway.dataplane.topics.codec import DELETE, RecordCodec
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dtypes.types import DATETIME, INT, STRING, DataType, DecimalType, OptionalType
from caraway.graph.connectors import CaptureConnector
from caraway.graph.plan.planner import plan_graph
from caraway.graph.sources import Cdc, Ref, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec, Graph
from caraway.graph.systems import MySQLSystem, PostgresSystem
from tests.unit.dataplane.sources.kept import Kept
from tests.unit.leased import KilledError

# The columns of the table that the dataset has. The table gets and loses others meanwhile.
COLUMNS: dict[str, DataType] = {
    "id": INT,
    "kind": OptionalType(STRING),
    "note": OptionalType(STRING),
    "size": OptionalType(DecimalType(scale=2)),
}


def plants(system: PostgresSystem | MySQLSystem, table: str) -> DatasetSpec:
    """Return a dataset of a table, whose event time is that of the commit."""
    source = SourceSpec(
        connector=CaptureConnector(system=system, table=table),
        cdc=Cdc.NATIVE,
        disorder_us=0,
        preproc=(("at", Ref(path=(COMMITTED_AT,))),),
    )
    fields = [FieldSpec(name=name, dtype=dtype, key=name == "id") for name, dtype in COLUMNS.items()]
    return DatasetSpec(
        name="Plants",
        version=1,
        history_us=0,
        fields=(*fields, FieldSpec(name="at", dtype=DATETIME, timestamp=True)),
        index=None,
        sources=(source,),
    )


@dataclass
class World(Kept):
    """All that outlives a worker: the topics, the checkpoint and the lease."""

    dataset: DatasetSpec
    most_rows: Callable[[], int] = lambda: 10_000
    reader: CaptureReader | None = None
    envelopes: list[dict[str, Any]] = field(default_factory=list)
    doubled: int = 0

    def __post_init__(self) -> None:
        self.plan = plan_graph(Graph(datasets=(self.dataset,))).ingests[0]
        self.target = Target(self.plan)
        self._codec = RecordCodec(self.plan.topic.schema)

    def context(self) -> SourceContext:
        source = self.dataset.sources[0]
        return SourceContext(
            name="plants",
            source=source,
            dataset=self.dataset,
            columns=None,
            resolve=str,
            live_rows=self.live_rows,
        )

    def live_rows(self) -> Iterator[LiveRow | None]:
        yield None
        names = [key.name for key in self.plan.topic.schema.keys]
        for (_, *key), (at_us, row) in self.newest().items():
            if row is not None:
                yield LiveRow(key=dict(zip(names, key, strict=True)), at_us=at_us)

    def newest(self) -> dict[tuple[Any, ...], tuple[int, Sequence[object] | None]]:
        """Return the newest version of each key: its event time, and its columns; None if it was deleted."""
        found: dict[tuple[Any, ...], tuple[int, Sequence[object] | None]] = {}
        for key, value, _ in self.topics.get(self.plan.topic.name, []):
            assert key is not None
            record = self._codec.decode_value(value)
            place = ("key", *self._codec.decode_key(key))
            if record.time >= found.get(place, (record.time, None))[0]:
                found[place] = (record.time, None if record.op == DELETE else record.row)
        return found

    def rows(self) -> dict[Any, list[object]]:
        """Return the dataset: the columns of each row by its key."""
        return {key[1]: list(row)[1:] for key, (_, row) in self.newest().items() if row is not None}

    @property
    def dead_letters(self) -> list[bytes]:
        return [value for _, value, _ in self.topics.get(DEAD_LETTERS, [])]

    def worker(self) -> SourceWorker:
        """Return a new process that reads the source."""

        def opened() -> CaptureReader:
            connector = self.dataset.sources[0].connector
            assert isinstance(connector, CaptureConnector)
            self.reader = Slow(connector, self)
            return self.reader

        return self.worker_of("plants", self.target, opened, sleep=lambda _: None)

    def kill(self) -> None:
        """End the process: nothing that it hasn't written is left."""
        if self.reader is not None:
            with suppress(Exception):
                self.reader.close()


class Slow(CaptureReader):
    """Reads as few rows at a time as the world says, and notes what it reads."""

    def __init__(self, connector: CaptureConnector, world: World) -> None:
        super().__init__(connector, world.context())
        self._world = world

    def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
        batch = super().poll(rows=min(rows, self._world.most_rows()), size=size, timeout_s=min(timeout_s, 0.02))
        if batch is not None:
            self._world.envelopes += [batch.rows.row(n) for n in range(len(batch.rows))]  # type: ignore[misc]
        return batch

    def acknowledge(self, position: Position) -> None:
        if self._world.fuse <= 0:
            raise KilledError
        super().acknowledge(position)
