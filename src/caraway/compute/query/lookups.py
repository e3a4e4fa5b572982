"""Lookup steps, which read the fields of a dataset by key columns in one read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from caraway.compute.query.batch import Batch, LaterRun, Run
from caraway.compute.query.model import Instants, KeyPart, LookupStep, QueryReader, Rows
from caraway.dtypes.types import base_type
from caraway.dtypes.values import cast
from caraway.errors import InvalidInputError
from caraway.graph.specs import IndexSpec

Convert = Callable[[object], object]
Keys = list[tuple[object, ...]]


def read_keys(
    reader: QueryReader,
    dataset: str,
    keys: Sequence[Sequence[object]],
    *,
    at: Instants,
    fields: Sequence[str],
    absent: Mapping[str, object],
) -> Rows:
    """Read the rows of `keys`, a column for each key field of the dataset, in its order and in stored form.

    A key with a null in it isn't found. Its fields have the values in `absent`, such as the defaults of aggregates.
    """
    present, times, positions = _present(keys, at)
    found = reader.read(dataset, present, times, fields) if present else _nothing(fields)
    return found if positions is None else _completed(found, len(keys[0]), positions, fields, absent)


def _present(keys: Sequence[Sequence[object]], at: Instants) -> tuple[Keys, Instants, list[int] | None]:
    """Return the keys without nulls, their times, and their positions among all keys (None if all are returned)."""
    rows = list(zip(*keys, strict=True))
    positions = [number for number, parts in enumerate(rows) if None not in parts]
    if len(positions) == len(rows):
        return rows, at, None
    times = at if isinstance(at, int) else [at[number] for number in positions]
    return [rows[number] for number in positions], times, positions


def _nothing(fields: Sequence[str]) -> Rows:
    return [[] for _ in fields], []


def _completed(
    found: Rows, rows: int, positions: Sequence[int], fields: Sequence[str], absent: Mapping[str, object]
) -> Rows:
    """Return the rows of all keys, given those of the keys without nulls."""
    columns: list[list[object]] = [[absent.get(field)] * rows for field in fields]
    there = [False] * rows
    for position, number in enumerate(positions):
        there[number] = found[1][position]
        for column, values in zip(columns, found[0], strict=True):
            column[number] = values[position]
    return columns, there


@dataclass(frozen=True, slots=True)
class Lookup:
    """A function that adds the columns of a lookup step to a batch; its caller may block until then, or await it."""

    step: LookupStep
    reader: QueryReader
    fields: Sequence[str]
    keys: Sequence[tuple[str, Convert | None]]
    outputs: Sequence[tuple[int, str, object]]

    def __call__(self, batch: Batch) -> None:
        """Add the step's columns to a batch."""
        keys, at, positions, lengths = self._asked(batch)
        read, fields = self.reader.read, self.fields
        self._add(batch, read(self.step.dataset, keys, at, fields) if keys else _nothing(fields), positions, lengths)

    async def later(self, batch: Batch) -> None:
        """Add the step's columns to a batch without blocking the event loop."""
        keys, at, positions, lengths = self._asked(batch)
        read, fields = self.reader.read_async, self.fields
        found = await read(self.step.dataset, keys, at, fields) if keys else _nothing(fields)
        self._add(batch, found, positions, lengths)

    def _asked(self, batch: Batch) -> tuple[Keys, Instants, list[int] | None, list[int] | None]:
        """Return the keys to read, their times and positions (see `_present`), and the lengths of lists of keys."""
        require_index(self.step.dataset, self.step.indexed, past=batch.past)
        columns, at, lengths = batch.columns, batch.at, None
        if self.step.each:
            lists = {name: _lists(name, columns[name]) for name, _ in self.keys}
            lengths = _lengths(lists, batch.rows)
            columns = {name: [item for row in rows for item in row] for name, rows in lists.items()}
            if not isinstance(at, int):
                at = [time for time, length in zip(at, lengths, strict=True) for _ in range(length)]
        values = [
            columns[name] if convert is None else _converted(name, convert, columns[name])
            for name, convert in self.keys
        ]
        return *_present(values, at), lengths

    def _add(self, batch: Batch, found: Rows, positions: list[int] | None, lengths: list[int] | None) -> None:
        if positions is not None:
            rows = batch.rows if lengths is None else sum(lengths)
            found = _completed(found, rows, positions, self.fields, self.step.absent)
        for number, name, default in self.outputs:
            column = found[0][number]
            if default is not None and None in column:
                column = [default if value is None else value for value in column]
            if lengths is not None:
                rest = iter(column)
                column = [[next(rest) for _ in range(length)] for length in lengths]
            batch.columns[name] = column


def compile_lookup(step: LookupStep, reader: QueryReader) -> Run | LaterRun:
    """Return the function that adds the columns of a lookup step to a batch."""
    fields = list(dict.fromkeys(feature.field for feature in step.features))
    keys = [(part.column, key_cast(part)) for part in step.keys]
    outputs = [(fields.index(feature.field), feature.column, feature.default) for feature in step.features]
    lookup = Lookup(step, reader, fields, keys, outputs)
    return lookup if reader.asks_others else lookup.__call__


def require_index(dataset: str, indexed: IndexSpec, *, past: bool) -> None:
    """Check that a dataset has the index that a read needs: offline for a time that the caller chose, otherwise online.

    Raises `InvalidInputError` if the dataset lacks that index.
    """
    if not (indexed.offline if past else indexed.online):
        kind, remedy = ("offline", '@index(offline="forever")') if past else ("online", "@index(online=True)")
        when = "at a time in the past" if past else "at now"
        raise InvalidInputError(f"dataset {dataset} has no {kind} index, which a read {when} needs; declare {remedy}")


def key_cast(part: KeyPart) -> Convert | None:
    """Return the conversion of a feature's values to those of the key field; None if they need none."""
    target = base_type(part.key_dtype)
    if part.dtype is not None and base_type(part.dtype) == target:
        return None
    convert = cast(target)
    return lambda value: None if value is None else convert(value)


def _converted(name: str, convert: Convert, values: Sequence[object]) -> list[object]:
    converted = []
    for row, value in enumerate(values):
        try:
            converted.append(convert(value))
        except InvalidInputError as error:
            raise InvalidInputError(f"{name}, row {row}, can't be a key: {error}") from None
    return converted


def _lists(name: str, values: Sequence[object]) -> list[list[object]]:
    for row, value in enumerate(values):
        if not isinstance(value, list):
            raise InvalidInputError(f"{name}, row {row}: a list of keys is expected, found {type(value).__name__}")
    return values  # type: ignore[return-value]  # just checked


def _lengths(lists: Mapping[str, Sequence[Sequence[object]]], rows: int) -> list[int]:
    """Return for each row the common length of its lists."""
    first = next(iter(lists))
    for row in range(rows):
        if len({len(column[row]) for column in lists.values()}) > 1:
            found = ", ".join(f"{name} has {len(column[row])}" for name, column in lists.items())
            raise InvalidInputError(f"row {row}: lists of keys differ in length: {found} elements")
    return [len(value) for value in lists[first]]
