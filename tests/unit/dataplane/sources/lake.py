"""A table in a folder as a source, with all that outlives a reader of it, for tests of the readers of table formats."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, ClassVar, cast

from caraway.dataplane.ingest.table import RowTable
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sources.reader import Position, SourceBatch, SourceReader
from caraway.dataplane.sources.rounds import Rounds
from caraway.dtypes.types import DATETIME, INT, STRING, DataType, optional
from caraway.graph.connectors import Connector, FilesConnector
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.specs import DatasetSpec
from caraway.graph.systems import FilesSystem
from tests.unit.dataplane.ingest.contexts import context_of, ingest_of
from tests.unit.graph.building import dataset

EVERY_US = 60_000_000
COLUMNS: dict[str, DataType] = {"k": INT, "text": STRING, "n": optional(INT), "part": optional(STRING), "at": DATETIME}
ROWS = dataset("Rows", COLUMNS, keys=["k"])
EVENTS = dataset("Rows", COLUMNS)


def row(key: int, text: str = "a", part: str = "p %") -> dict[str, Any]:
    # A row keeps its partition, also when it changes.
    at = datetime.fromtimestamp(1_700_000_000 + key, UTC)
    return {"k": key, "text": text, "part": None if key % 3 == 2 else f"{part}{key % 3}", "at": at}


@dataclass
class Lake:
    """A table, and all that outlives a reader of it."""

    reads: ClassVar[Callable[..., SourceReader]]
    format: ClassVar[str]

    folder: Path
    cdc: Cdc = Cdc.NATIVE
    dataset: DatasetSpec = ROWS
    source: dict[str, Any] = field(default_factory=dict)
    prefix: str = "lake/rows/"
    time: float = 1_700_000_000.0
    position: Position = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    target: Target = field(init=False)

    @property
    def path(self) -> Path:
        return self.folder / self.prefix

    def create_empty(self) -> None:
        """Make the table, without rows."""
        raise NotImplementedError

    def overwrite(self, *rows: Mapping[str, Any]) -> None:
        """Replace all rows; only tables whose deletes are read have this."""
        raise NotImplementedError

    def grow(self) -> None:
        """Add rows of the keys 0 to 5; the second time, add one of the key 6."""
        raise NotImplementedError

    def change(self, kind: str, key: int, number: int) -> None:
        """Change the table in a way that its format has; `number` is another one each time."""
        raise NotImplementedError

    def content(self) -> list[dict[str, Any]]:
        """Return the rows of the table as its format's own library reads them."""
        raise NotImplementedError

    def bytes(self) -> int:
        """Return how many bytes the files have that have the rows."""
        return sum(file.stat().st_size for file in self.path.rglob("*.parquet"))

    @property
    def connector(self) -> Connector:
        return FilesConnector(
            system=FilesSystem(name="files"), container=str(self.folder), prefix=self.prefix, format=self.format
        )

    def open(self) -> SourceReader:
        spec = SourceSpec(connector=self.connector, cdc=self.cdc, disorder_us=0, every_us=EVERY_US, **self.source)
        plan = ingest_of(self.dataset, spec)
        self.target = Target(plan)
        context = context_of(plan, local_folders=(str(self.folder),))
        return type(self).reads(
            spec.connector, context, rounds=Rounds(EVERY_US, now=lambda: self.time, sleep=self.sleep)
        )

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def seek(self) -> SourceReader:
        opened = self.open()
        self.position = opened.seek(self.position, {})
        return opened

    def drain(self, *, rows: int = 1000) -> list[SourceBatch]:
        """Read one round."""
        opened = self.seek()
        found: list[SourceBatch] = []
        while True:
            batch = opened.poll(rows=rows, size=1 << 22, timeout_s=EVERY_US)
            if batch is None:
                continue
            self._check_encoded(batch)
            found.append(batch)
            self.position = batch.position
            if not batch.position["reading"]:
                opened.close()
                return found

    def _check_encoded(self, batch: SourceBatch) -> None:
        """Check that all rows together become the records that each row, as it is shown, becomes alone."""
        count = len(batch.rows)
        rows = RowTable([batch.rows.row(number) for number in range(count)], {})
        together = self.target.encode(batch.rows, 0, count, 5)
        assert together.records == self.target.encode(rows, 0, count, 5).records
        assert together.errors == self.target.encode(rows, 0, count, 5).errors

    def drain_with_crashes(self, chance: Random, rows: Callable[[], int]) -> Iterator[tuple[SourceBatch, int]]:
        """Read one round, and yield the place of each row whose mark hasn't been there before.

        The process may end after each batch, before or after its position is saved.
        """
        reading = True
        while reading:
            opened = self.seek()
            while reading:
                batch = opened.poll(rows=rows(), size=1 << 22, timeout_s=EVERY_US)
                if batch is None:
                    continue
                for at in range(len(batch.rows)):
                    mark = batch.mark(at)
                    assert not opened.is_ahead(mark)
                    if mark not in self.marks:
                        yield batch, at
                    self.marks.add(mark)
                crash = chance.random()
                if crash > 0.2:
                    self.position = batch.position
                    reading = bool(batch.position["reading"])
                if crash < 0.4:
                    opened.close()
                    break

    def first(self, rows: int) -> list[dict[str, Any]]:
        """Read some rows of the first round, and remember the position behind them."""
        opened = self.seek()
        batch = opened.poll(rows=rows, size=1 << 22, timeout_s=0)
        assert batch is not None
        opened.close()
        self.position = batch.position
        return rows_of([batch])


def rows_of(found: Iterable[SourceBatch]) -> list[dict[str, Any]]:
    return [cast("dict[str, Any]", batch.rows.row(number)) for batch in found for number in range(len(batch.rows))]


def keys_of(changes: Iterable[Mapping[str, Any]], key: str = "k") -> list[tuple[str, Any]]:
    """Return what each envelope does, and the key of its row."""
    return [(each["op"], (each["before"] or each["after"])[key]) for each in changes]


def chosen(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the dataset's fields."""
    return {each.name: values[each.name] for each in ROWS.fields}


def applied(
    state: dict[int, dict[str, Any]],
    changes: Iterable[Mapping[str, Any]],
    chosen: Callable[[Mapping[str, Any]], dict[str, Any]] = chosen,
) -> None:
    """Change a dataset as envelopes say."""
    for change in changes:
        if change["op"] == "d":
            assert change["after"] is None
            del state[change["before"]["k"]]
        else:
            assert change["op"] in {"c", "r", "u"}
            assert change["before"] is None or change["op"] == "u"
            state[change["after"]["k"]] = chosen(change["after"])
