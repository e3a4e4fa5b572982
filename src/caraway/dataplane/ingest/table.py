"""The `data` of a log request in any of its three forms: rows, columns, or either of them as JSON text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar, Protocol

from caraway.compute.rows.column_casts import MISSING
from caraway.errors import InvalidInputError, TooLargeError, shortened
from caraway.process.json_text import parse

# The most rows in one request, to log or to query. With nine columns, so many rows have as many values as a text may
# have, each row included (`caraway.process.json_text.MAX_VALUES`).
MAX_ROWS = 100_000
# The most columns that the error about columns of different lengths lists, so that it stays readable.
SHOWN_COLUMNS = 20


@dataclass(frozen=True, slots=True)
class _Rows:
    """The columns of rows, each of which is a dict unless it is no object."""

    data: Sequence[object]

    def __len__(self) -> int:
        return len(self.data)

    def names(self) -> set[str]:
        """Return the fields that at least one row has."""
        return set().union(*(row for row in self.data if isinstance(row, dict)))

    def column(self, name: str, start: int, stop: int) -> list[object]:
        """Return the values of a field in rows `start` to `stop`."""
        data = self.data[start:stop]
        try:
            return [row[name] for row in data]  # type: ignore[index]
        except (KeyError, TypeError, IndexError):
            return [row.get(name, MISSING) if isinstance(row, dict) else MISSING for row in data]


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of lists of equal length, by their names."""

    columns: Mapping[str, list[object]]
    rows: int

    def __len__(self) -> int:
        return self.rows

    def names(self) -> set[str]:
        """Return all columns."""
        return set(self.columns)

    def column(self, name: str, start: int, stop: int) -> list[object]:
        """Return the values of a column in rows `start` to `stop`."""
        values = self.columns.get(name)
        return [MISSING] * (stop - start) if values is None else values[start:stop]


@dataclass(frozen=True, slots=True)
class RowTable(_Rows):
    """A list of objects; `faults` has an error for each element that is no object, by its number."""

    faults: Mapping[int, str]
    has_inserts: ClassVar[bool] = False

    def row(self, number: int) -> object:
        """Return a row as it was sent."""
        return self.data[number]


@dataclass(frozen=True, slots=True)
class ColumnTable(_Columns):
    """An object whose values are lists of equal length."""

    faults: Mapping[int, str] = field(default_factory=dict)
    has_inserts: ClassVar[bool] = False

    def row(self, number: int) -> object:
        """Return a row as an object."""
        return {name: values[number] for name, values in self.columns.items()}


@dataclass(frozen=True, slots=True)
class InsertTable(_Rows):
    """Rows that a source of envelopes inserts, without the envelopes, which say nothing more of them.

    An envelope is made only of a row that is shown, such as one that is refused.
    """

    envelope: Callable[[int], object]
    faults: Mapping[int, str] = field(default_factory=dict)
    has_inserts: ClassVar[bool] = True

    def row(self, number: int) -> object:
        """Return the envelope of a row."""
        return self.envelope(number)


@dataclass(frozen=True, slots=True)
class InsertColumns(_Columns):
    """Rows that a source of envelopes inserts, as `InsertTable`, by column."""

    envelope: Callable[[int], object]
    faults: Mapping[int, str] = field(default_factory=dict)
    has_inserts: ClassVar[bool] = True

    def row(self, number: int) -> object:
        """Return the envelope of a row."""
        return self.envelope(number)


class Table(Protocol):
    """The rows of a payload, in whichever form they came."""

    @property
    def has_inserts(self) -> bool:
        """True if the columns are those of rows that a source of envelopes inserts, and not those of the envelopes."""
        ...

    @property
    def faults(self) -> Mapping[int, str]:
        """The reasons why some rows aren't rows, by their numbers."""
        ...

    def __len__(self) -> int: ...

    def names(self) -> set[str]:
        """Return the fields that at least one row has."""
        ...

    def column(self, name: str, start: int, stop: int) -> list[object]:
        """Return the values of a field in rows `start` to `stop`, `MISSING` where a row lacks it."""
        ...

    def row(self, number: int) -> object:
        """Return a row as an object, or what came in its place."""
        ...


def table(data: object) -> Table:
    """Return the rows of the `data` of a request.

    Raises:
        TooLargeError: The data has too many rows.
        InvalidInputError: The data is neither a list of objects, nor an object of equally long lists, nor JSON text of
            these.
    """
    if isinstance(data, str):
        try:
            data = parse(data.encode())
        except InvalidInputError as error:
            raise InvalidInputError(f"data is text that {error}") from error
    if isinstance(data, list):
        _check_rows(len(data))
        plain = set(map(type, data)) <= {dict}
        rows = () if plain else enumerate(data)
        return RowTable(data, {n: expects_object(row) for n, row in rows if not isinstance(row, dict)})
    if isinstance(data, dict):
        return _columns(data)
    raise InvalidInputError(
        f"data is {json_type(data)}; a list of objects (rows), an object of lists (columns) or JSON text is expected"
    )


def _columns(data: Mapping[str, object]) -> ColumnTable:
    columns: dict[str, list[object]] = {}
    for name, values in data.items():
        if not isinstance(values, list):
            found = f"column {shortened(name)!r} is {json_type(values)}"
            raise InvalidInputError(f"data: {found}, a list is expected (a single row is [{{...}}])")
        columns[name] = values
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        shown = ", ".join(f"{shortened(name)} {len(values)}" for name, values in islice(columns.items(), SHOWN_COLUMNS))
        raise InvalidInputError(f"data: the columns differ in length: {shown}")
    rows = next(iter(lengths), 0)
    _check_rows(rows)
    return ColumnTable(columns, rows)


def _check_rows(rows: int) -> None:
    if rows > MAX_ROWS:
        raise TooLargeError(
            f"a request may have {MAX_ROWS:,} rows, this one has {rows:,}; send them in several requests"
        )


def expects_object(row: object) -> str:
    """Return the message about an element that is no object."""
    return f"is {json_type(row)}, an object is expected"


def json_type(value: object) -> str:
    """Return the name of a value's JSON type."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"
