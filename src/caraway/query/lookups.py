"""Lookup steps, which read the fields of a dataset by key columns in one read."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from caraway.dtypes.types import base_type
from caraway.dtypes.values import cast
from caraway.errors import InvalidInputError
from caraway.graph.specs import IndexSpec
from caraway.query.batch import Batch, LaterRun, Run
from caraway.query.model import AsyncReader, Instants, KeyPart, LookupStep, Reader

Convert = Callable[[object], object]
# The keys and times of a read, and its result.
Asked = tuple[list[tuple[object, ...]], Instants]
Rows = tuple[list[list[object]], list[bool]]


def read_keys(
    reader: Reader,
    dataset: str,
    keys: Sequence[Sequence[object]],
    *,
    at: Instants,
    fields: Sequence[str],
    absent: Mapping[str, object],
) -> Rows:
    """Read the rows of `keys`, a column for each key field; a key with a null in it isn't found.

    Args:
        reader: Reads the rows.
        dataset: The name of the dataset.
        keys: The key columns, in the dataset's order, in stored form.
        at: The time of each row, or one for all.
        fields: The names of the wanted fields.
        absent: The values of fields for a key that can't exist, such as the defaults of aggregates.
    """
    reading = _reading(keys, at=at, fields=fields, absent=absent)
    try:
        asked = next(reading)
        reading.send(reader.read(dataset, *asked, fields))
    except StopIteration as done:
        rows: Rows = done.value
        return rows
    raise TypeError("a read of keys asks once")


def _reading(
    keys: Sequence[Sequence[object]], *, at: Instants, fields: Sequence[str], absent: Mapping[str, object]
) -> Generator[Asked, Rows, Rows]:
    """Yield the keys and times to read, at most once, and return the rows; the caller reads and sends the result."""
    rows = list(zip(*keys, strict=True))
    present = [number for number, parts in enumerate(rows) if None not in parts]
    if len(present) == len(rows):
        return (yield rows, at)
    instants = at if isinstance(at, int) else [at[number] for number in present]
    some: list[list[object]] = [[] for _ in fields]
    some_found: list[bool] = []
    if present:
        some, some_found = yield [rows[number] for number in present], instants
    columns: list[list[object]] = [[absent.get(field)] * len(rows) for field in fields]
    found = [False] * len(rows)
    for position, number in enumerate(present):
        found[number] = some_found[position]
        for column, values in zip(columns, some, strict=True):
            column[number] = values[position]
    return columns, found


@dataclass(frozen=True, slots=True)
class LaterLookup:
    """Adds the columns of a lookup step to a batch, from an index whose shards other servers may own.

    `reading` yields the keys and times to read, and is sent the rows.
    """

    reader: AsyncReader
    dataset: str
    fields: Sequence[str]
    reading: Callable[[Batch], Generator[Asked, Rows, None]]

    def __call__(self, batch: Batch) -> None:
        """Add the step's columns to a batch."""
        reading = self.reading(batch)
        with suppress(StopIteration):
            asked = next(reading)
            reading.send(self.reader.read(self.dataset, *asked, self.fields))

    async def later(self, batch: Batch) -> None:
        """Add the step's columns to a batch without blocking the event loop."""
        reading = self.reading(batch)
        with suppress(StopIteration):
            asked = next(reading)
            reading.send(await self.reader.read_async(self.dataset, *asked, self.fields))


def compile_lookup(step: LookupStep, reader: Reader) -> Run | LaterRun:
    """Return the function that adds the columns of a lookup step to a batch."""
    fields = list(dict.fromkeys(feature.field for feature in step.features))
    keys = [(part.column, key_cast(part)) for part in step.keys]
    outputs = [(fields.index(feature.field), feature.column, feature.default) for feature in step.features]
    dataset, indexed, absent = step.dataset, step.indexed, step.absent

    def taken(found: list[list[object]]) -> dict[str, list[object]]:
        return {
            name: found[position]
            if default is None or None not in found[position]
            else [default if v is None else v for v in found[position]]
            for position, name, default in outputs
        }

    def run(batch: Batch) -> Generator[Asked, Rows, None]:
        require_index(dataset, indexed, past=batch.past)
        columns = batch.columns
        values = [
            columns[name] if convert is None else _converted(name, convert, columns[name]) for name, convert in keys
        ]
        found, _ = yield from _reading(values, at=batch.at, fields=fields, absent=absent)
        columns.update(taken(found))

    def run_each(batch: Batch) -> Generator[Asked, Rows, None]:
        require_index(dataset, indexed, past=batch.past)
        lists = {name: _lists(name, batch.columns[name]) for name, _ in keys}
        lengths = _lengths(lists, batch.rows)
        flat = {name: [item for row in rows for item in row] for name, rows in lists.items()}
        values = [flat[name] if convert is None else _converted(name, convert, flat[name]) for name, convert in keys]
        at = batch.at
        if not isinstance(at, int):
            at = [time for time, length in zip(at, lengths, strict=True) for _ in range(length)]
        found, _ = yield from _reading(values, at=at, fields=fields, absent=absent)
        for name, elements in taken(found).items():
            rest = iter(elements)
            batch.columns[name] = [[next(rest) for _ in range(length)] for length in lengths]

    reading = run_each if step.each else run
    if isinstance(reader, AsyncReader):
        return LaterLookup(reader, dataset, fields, reading)

    def add(batch: Batch) -> None:
        steps = reading(batch)
        try:
            steps.send(reader.read(dataset, *next(steps), fields))
        except StopIteration:
            # The generator has its rows, or needed none.
            return

    return add


def require_index(dataset: str, indexed: IndexSpec, *, past: bool) -> None:
    """Check that a dataset has the index that a read needs: offline for a time that the caller chose, otherwise online.

    Raises:
        InvalidInputError: The dataset lacks that index.
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
