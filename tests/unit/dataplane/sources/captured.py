"""A captured table without a database: a log that has nothing, and the reader of such a log."""

from collections.abc import Mapping, Sequence
from typing import Any

from caraway.dataplane.sources.cdc.log import Change, ChangeLog, Chunk, Coordinate, Event, Row
from caraway.dataplane.sources.cdc.reader import CaptureReader
from caraway.dataplane.sources.reader import SourceContext
from caraway.graph.specs import DatasetSpec
from tests.unit.dataplane.ingest.contexts import CAPTURED


class EmptyLog:
    """A log that has nothing (`ChangeLog`); what it fails at is what its test must not need."""

    key = ("id",)
    has_whole_rows = True
    whole_rows_remedy = ""

    def first_state(self) -> Mapping[str, Any]:
        return {}

    def open(self, state: Mapping[str, Any], at: Coordinate | None, *, loading: bool) -> None:
        raise AssertionError(state, at, loading)

    def next(self, timeout_s: float, *, rows: int, size: int) -> Event | None:
        raise AssertionError(timeout_s, rows, size)

    def state(self) -> Mapping[str, Any]:
        return {}

    def chunk(self, after: Sequence[str | None] | None, *, rows: int, size: int) -> Chunk | None:
        raise AssertionError(after, rows, size)

    def loaded(self) -> None:
        raise AssertionError

    def complete(self, changes: Sequence[Change]) -> None:
        raise AssertionError(changes)

    def confirm(self, at: Coordinate) -> None:
        raise AssertionError(at)

    def estimated_rows(self) -> int:
        return 0

    def sample(self, rows: int) -> list[Row]:
        raise AssertionError(rows)

    def close(self) -> None:
        pass


def reader_of(log: ChangeLog, dataset: DatasetSpec) -> CaptureReader:
    """Return the reader of a log for the only source of a dataset, which captures a table."""
    (source,) = dataset.sources
    made = CaptureReader(CAPTURED, SourceContext(name="s", source=source, dataset=dataset, columns=None, resolve=str))
    made._log = log
    return made
