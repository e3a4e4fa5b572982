"""Pieces of files: consecutive rows of one file, as a table, and several of them as one table."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from caraway.compute.rows.column_casts import MISSING
from caraway.dataplane.ingest.table import RowTable, Table
from caraway.dtypes.instants import MAX_SECONDS
from caraway.dtypes.types import FLOAT, INT, DataType, DatetimeType, strip_optional
from caraway.graph.sources import Ref, SourceSpec
from caraway.graph.specs import DatasetSpec

# An integer above this is always read as microseconds (`caraway.dtypes.instants` guesses the unit of a number by its
# size): these are the instants from April 1970 on. Earlier instants are handed over as datetimes.
LEAST_US = MAX_SECONDS * 1_000


NO_TYPES: Mapping[str, DataType] = {}
# The texts that are surely numbers, and exact ones, by the type: all others are left to the dataset's own casts.
_PLAIN_NUMBERS: Mapping[DataType, tuple[str, Any]] = {
    INT: ("^-?[0-9]{1,18}$", pa.int64()),
    FLOAT: (r"^-?[0-9]{1,15}(\.[0-9]{1,20})?$", pa.float64()),
}


def cast_types(dataset: DatasetSpec, source: SourceSpec) -> Mapping[str, DataType]:
    """Return the types to which the columns of a payload are cast, if they become the fields of the same name alone."""
    made = {name for name, _ in source.preproc}
    used = {made.path[0] for _, made in source.preproc if isinstance(made, Ref)}
    return {field.name: field.dtype for field in dataset.fields if field.name not in made | used}


class ArrowTable:
    """Rows of a record batch of Arrow (`caraway.dataplane.ingest.table.Table`).

    A column is converted to Python's values when it is first asked for, all rows at once, which takes a tenth of the
    time that they would take one by one.
    """

    has_inserts = False
    faults: Mapping[int, str] = {}

    def __init__(self, batch: Any, types: Mapping[str, DataType] = NO_TYPES) -> None:
        """Take a batch; `types` are those to which its columns are cast, as far as they are known."""
        self._batch = batch
        self._types = types
        self._columns: dict[str, list[object]] = {}

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def names(self) -> set[str]:
        """Return all columns."""
        return set(self._batch.schema.names)

    def column(self, name: str, start: int, stop: int) -> list[object]:
        """Return the values of a column in rows `start` to `stop`."""
        values = self._columns.get(name)
        if values is None:
            if name not in self._batch.schema.names:
                return [MISSING] * (stop - start)
            values = self._columns[name] = _values(self._batch.column(name), self._types.get(name))
        return values if stop - start == len(values) else values[start:stop]

    def row(self, number: int) -> object:
        """Return a row as an object."""
        return self.objects[number]

    @cached_property
    def objects(self) -> list[dict[str, object]]:
        """The rows as objects."""
        names = self._batch.schema.names
        columns = [_values(self._batch.column(name), None) for name in names]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)] or [
            {} for _ in range(len(self))
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive rows of one file.

    Attributes:
        first: The number of the first row in the file, from 0.
        rows: The rows, a record batch of Arrow, or a list with an object or the text of a bad row.
        faults: The reasons why elements of the list aren't rows, by their places in it.
        lines: The lines on which the rows are, from 1; None if the file has no lines.
    """

    first: int
    rows: Any
    faults: Mapping[int, str] = field(default_factory=dict)
    lines: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def cut(self, start: int, stop: int) -> "Piece":
        """Return the piece that has the rows `start` to `stop` of this one."""
        if start == 0 and stop >= len(self):
            return self
        some = self.rows.slice(start, stop - start) if isinstance(self.rows, pa.RecordBatch) else self.rows[start:stop]
        return Piece(
            first=self.first + start,
            rows=some,
            faults={at - start: fault for at, fault in self.faults.items() if start <= at < stop},
            lines=None if self.lines is None else self.lines[start:stop],
        )

    def table(self, types: Mapping[str, DataType]) -> Table:
        """Return the rows as a table, for columns that are cast to these types."""
        if isinstance(self.rows, pa.RecordBatch):
            return ArrowTable(self.rows, types)
        return RowTable(self.rows, self.faults)


class ArrowInserts(ArrowTable):
    """Rows of a record batch of Arrow, which a source of envelopes inserts.

    An envelope is made only of a row that is shown, such as one that is refused.
    """

    has_inserts = True

    def __init__(self, batch: Any, types: Mapping[str, DataType], ops: Sequence[str], ts_ms: int) -> None:
        """Take a batch.

        Args:
            batch: The rows.
            types: The types to which its columns are cast.
            ops: The operation of each row.
            ts_ms: The time of the change in milliseconds since the epoch.
        """
        super().__init__(batch, types)
        self._ops = ops
        self._source = {"ts_ms": ts_ms}

    def row(self, number: int) -> object:
        """Return the envelope of a row."""
        return {"op": self._ops[number], "before": None, "after": self.objects[number], "source": self._source}


class JoinedTable:
    """Several tables, one behind the other, as one."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = tables
        self.has_inserts = bool(tables) and all(table.has_inserts for table in tables)
        self.starts: list[int] = []
        """The number of the first row of each table."""
        self.faults: dict[int, str] = {}
        rows = 0
        for table in tables:
            self.starts.append(rows)
            self.faults |= {rows + number: fault for number, fault in table.faults.items()}
            rows += len(table)
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    def names(self) -> set[str]:
        """Return the columns that at least one table has."""
        return set().union(*(table.names() for table in self._tables))

    def column(self, name: str, start: int, stop: int) -> list[object]:
        """Return the values of a column in rows `start` to `stop`."""
        found: list[object] = []
        for begin, table in zip(self.starts, self._tables, strict=True):
            first, last = max(start - begin, 0), min(stop - begin, len(table))
            if first < last:
                found += table.column(name, first, last)
        return found

    def row(self, number: int) -> object:
        """Return a row as an object."""
        at = self.at(number)
        return self._tables[at].row(number - self.starts[at])

    def at(self, number: int) -> int:
        """Return the place of the table that has a row."""
        return bisect_right(self.starts, number) - 1


def _values(column: Any, dtype: DataType | None) -> list[object]:
    """Return a column as Python's values that are cast to a type as the column's own values would be.

    NaN is null. If nothing else can be meant, instants are integers, and the texts of numbers are numbers: these casts
    take Arrow a hundredth of the time.
    """
    is_instant = dtype is not None and isinstance(strip_optional(dtype), DatetimeType)
    kind = column.type
    if dtype is not None and pa.types.is_string(kind):
        column = _numbers(column, strip_optional(dtype))
        kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_timestamp(kind):
        if not is_instant:
            # Python's datetimes have microseconds. Nanoseconds would become objects of pandas.
            return list(column.cast(pa.timestamp("us", kind.tz), safe=False).to_pylist())
        instants = column.cast(pa.timestamp("us", kind.tz), safe=False)
        numbers = instants.cast(pa.int64())
        least = pc.min(numbers).as_py()
        column = numbers if least is not None and least > LEAST_US else instants
        kind = column.type
    if pa.types.is_floating(kind):
        if pa.types.is_float16(kind):
            column = column.cast(pa.float32())
        column = pc.if_else(pc.is_nan(column), None, column) if pc.any(pc.is_nan(column)).as_py() else column
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if column.null_count == 0 and (is_number or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return list(column.to_numpy(zero_copy_only=False).tolist())
    if pa.types.is_nested(kind):
        return list(column.to_pylist(maps_as_pydicts="lossy"))
    return list(column.to_pylist())


def _numbers(column: Any, dtype: DataType) -> Any:
    """Return a column of texts as numbers if each is one in the plainest form, or empty; else as it is."""
    if dtype not in _PLAIN_NUMBERS:
        return column
    pattern, kind = _PLAIN_NUMBERS[dtype]
    there = pc.if_else(pc.equal(column, ""), None, column)
    # If all cells are empty, `all` returns None, so the column stays text, and the dataset's casts read it.
    return there.cast(kind) if pc.all(pc.match_substring_regex(there, pattern)).as_py() else column
