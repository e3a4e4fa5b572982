"""Batches of rows of several files, with the marks by which the rows are known."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from caraway.dtypes.types import DataType
from caraway.ingest.marks import run_of
from caraway.ingest.sources.files.pieces import ArrowTable, JoinedTable
from caraway.ingest.sources.reader import Position, SourceBatch
from caraway.ingest.sources.snapshots.rows import Rows
from caraway.ingest.table import ColumnTable, Table


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


def table_of(rows: Rows, types: Mapping[str, DataType], op: str | None, ts_ms: int) -> Table:
    """Return rows as they are handed over.

    Args:
        rows: The rows.
        types: The types to which their columns are cast.
        op: The operation of the envelopes of Debezium in which they are; None: they are in none.
        ts_ms: The time of the change in milliseconds since the epoch, for envelopes.
    """
    table = ArrowTable(rows.batch, types)
    if op is None:
        return table
    there: list[object] = [table.row(number) for number in range(len(table))]
    nothing: list[object] = [None] * len(table)
    before, after = (there, nothing) if op == "d" else (nothing, there)
    columns: dict[str, list[object]] = {
        "op": [op] * len(table),
        "before": before,
        "after": after,
        "source": [{"ts_ms": ts_ms}] * len(table),
    }
    return ColumnTable(columns, len(table))


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
