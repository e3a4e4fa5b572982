"""The protocol of a database, by which the reader of tables reads it, whatever its language is."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from caraway.dataplane.sources.tables.cursors import CursorKind

# A row as the driver returns it, in the order of the columns that were asked for.
Row = Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of a table.

    Attributes:
        name: The name as the database has it.
        type: The type as the database names it.
        kind: How the column can be a cursor; None if it can't.
        nullable: True if it may have nulls.
        convert: Returns a value of the driver as JSON, Python's time types, bytes or `Decimal`; it raises `ValueError`
            for a value that can't be a value of a row. None if nothing need be converted. It isn't called for nulls.
    """

    name: str
    type: str
    kind: CursorKind | None = None
    nullable: bool = True
    convert: Callable[[Any], object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """The columns of a table.

    Attributes:
        columns: The columns by name.
        primary_key: The names of the columns that make a row unique, empty if there are none. The database can compare
            rows by them quickly.
        folds_case: True if names in other cases than the table's denote the same column.
        rows: An estimate of the number of rows, without counting them; None if there is none.
    """

    columns: Mapping[str, TableColumn]
    primary_key: Sequence[str] = ()
    folds_case: bool = False
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The facts about a table before a round.

    Attributes:
        greatest: The greatest value of the cursor; None if there is no row with one.
        now_us: The database's time, in microseconds since the epoch; None if it isn't known.
        nulls: How many rows without a value of the cursor there are, counted up to `MAX_NULLS`.
    """

    greatest: Any
    now_us: int | None = None
    nulls: int = 0


# At most this many rows without a cursor are counted, so that the count doesn't take long.
MAX_NULLS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Rows to be read, in the order of the cursor and then of the primary key.

    Attributes:
        columns: The columns of each row: the cursor first, then the primary key, then the others.
        keys: How many of the columns are the cursor and the primary key.
        least: The least value of the cursor, itself included; None: there is none.
        most: The greatest value of the cursor, itself included.
        after: The values of the first `keys` columns behind which the page begins; None: it begins at `least`.
        limit: The most rows; None: all.
    """

    columns: Sequence[str]
    keys: int
    least: Any
    most: Any
    after: Sequence[Any] | None
    limit: int | None


class Database(Protocol):
    """One table of a database, for reading.

    It connects at the first use. All methods raise `UnavailableError` with the system, the table and the remedy.
    """

    where: str
    """The system and the table, for messages."""

    def shape(self) -> TableShape:
        """Return the table's columns."""
        ...

    def bounds(self, cursor: TableColumn) -> Bounds:
        """Return the greatest value of the cursor, and how many rows have none."""
        ...

    def rows(self, page: Page) -> Iterator[Sequence[Row]]:
        """Yield the rows of a page in chunks of some MB at most; the reader may stop before the end."""
        ...

    def close(self) -> None:
        """End the connection. It may be called twice, and never raises."""
        ...
