"""Batches of rows of several files, with the marks by which the rows are known."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from caraway.dataplane.ingest.marks import run_of
from caraway.dataplane.ingest.table import ColumnTable, Table
from caraway.dataplane.sources.files.pieces import ArrowTable, JoinedTable
from caraway.dataplane.sources.reader import Position, SourceBatch
from caraway.dtypes.types import DataType


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one file in a batch.

    Attributes:
        prefix: The beginning of their marks.
        origin: The place of their file and snapshot, for dead letters.
        numbers: The numbers of the rows in the file, an array of numpy.
        table: The rows.
    """

    prefix: str
    origin: Mapping[str, object]
    numbers: "np.typing.NDArray[np.int64]"
    table: Table


def deleted(batch: Any, types: Mapping[str, DataType], ts_ms: int) -> Table:
    """Return rows that are removed, in envelopes of Debezium.

    Args:
        batch: The rows, a record batch of Arrow.
        types: The types to which their columns are cast.
        ts_ms: The time of the change in milliseconds since the epoch.
    """
    rows: list[object] = list(ArrowTable(batch, types).objects)
    columns: dict[str, list[object]] = {
        "op": ["d"] * len(rows),
        "before": rows,
        "after": [None] * len(rows),
        "source": [{"ts_ms": ts_ms}] * len(rows),
    }
    return ColumnTable(columns, len(rows))


def batch_of(parts: Sequence[Part], position: Position, size: int, *, is_fence: bool) -> SourceBatch:
    """Return a batch of the rows of several files, one behind the other; see `SourceBatch` for the rest."""
    joined = JoinedTable([part.table for part in parts])

    def part_of(row: int) -> tuple[Part, int]:
        at = bisect_right(joined.starts, row) - 1
        return parts[at], int(parts[at].numbers[row - joined.starts[at]])

    def mark(row: int) -> str:
        part, number = part_of(row)
        return f"{part.prefix}/{number}"

    def run(start: int, stop: int) -> str:
        texts: list[str] = []
        for begin, part in zip(joined.starts, parts, strict=True):
            numbers = part.numbers[max(start - begin, 0) : max(stop - begin, 0)]
            if not len(numbers):
                continue
            first, last = int(numbers[0]), int(numbers[-1])
            if last - first + 1 == len(numbers):
                texts.append(run_of(part.prefix, first, last))
            else:
                texts += [f"{part.prefix}/{number}" for number in numbers.tolist()]
        return ",".join(texts)

    def origin(row: int) -> Mapping[str, object]:
        part, number = part_of(row)
        return {**part.origin, "row": number + 1}

    return SourceBatch(rows=joined, mark=mark, run=run, origin=origin, position=position, size=size, is_fence=is_fence)
