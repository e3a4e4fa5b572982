"""The choice of the columns that are read of a table, and what becomes of their values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from caraway.compute.rows.records import demanded_columns
from caraway.dataplane.sources.columns import SHOWN_COLUMNS, needed_columns
from caraway.dataplane.sources.reader import SourceContext
from caraway.dataplane.sources.tables.cursors import CursorKind, shown
from caraway.dataplane.sources.tables.database import Row, TableColumn, TableShape
from caraway.dataplane.sources.tables.digests import Digests
from caraway.errors import UnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The columns that are read.

    Attributes:
        cursor: The cursor.
        kind: How its values grow.
        fetched: The columns of each row: the cursor, the primary key, those of the digest, the others.
        keys: How many of them are the cursor and the primary key.
        digested: The names of those of the digest, which are the first ones.
        has_key: True if the table has a primary key.
        payload_names: The names of the payload, with the number of the column that each has.
        schema: A digest of the names and types of the columns of the digest.
        digests: Makes the digests of rows.
    """

    cursor: TableColumn
    kind: CursorKind
    fetched: Sequence[TableColumn]
    keys: int
    digested: Sequence[str]
    has_key: bool
    payload_names: Mapping[str, int]
    schema: str
    digests: Digests

    @property
    def names(self) -> list[str]:
        """The names of the columns that are fetched."""
        return [column.name for column in self.fetched]

    def payload(self, fetched: Sequence[list[Any]]) -> tuple[dict[str, list[object]], dict[int, str]]:
        """Return the columns of a payload, and by its number why a row can't be read.

        Args:
            fetched: The values of each column that is fetched, which stay as they are.
        """
        faults: dict[int, str] = {}
        payload: dict[int, list[object]] = {}
        for number, column in enumerate(self.fetched):
            payload[number] = fetched[number]
            if (convert := column.convert) is None:
                continue
            payload[number] = values = list(fetched[number])
            for row, value in enumerate(values):
                if value is not None:
                    try:
                        values[row] = convert(value)
                    except ValueError as error:
                        values[row] = None
                        faults.setdefault(row, f"column {column.name}: {error}")
        return {name: payload[number] for name, number in self.payload_names.items()}, faults

    def key_of(self, row: Row) -> dict[str, object]:
        """Return where a row is, for a dead letter."""
        key = {column.name: shown(value) for column, value in zip(self.fetched[: self.keys], row, strict=False)}
        return {"cursor": shown(row[0]), "key": {name: key[name] for name in list(key)[1:]}}


def choose(
    shape: TableShape, cursor: str, context: SourceContext, seed: int, *, before: Sequence[str], where: str
) -> Choice:
    """Choose the columns that are read of a table.

    Args:
        shape: The table.
        cursor: The name of the cursor.
        context: The source.
        seed: The seed of the digests.
        before: The columns of the digests so far; empty in the beginning.
        where: The system and the table, for messages.

    Raises:
        UnavailableError: A column that must be there is missing, or can't be the cursor.
    """
    columns = shape.columns
    at = _find(shape, cursor, where)
    if at is None:
        raise UnavailableError(f"{where}: there is no column {cursor} to be the cursor; columns: {_shown(shape)}")
    if at.kind is None:
        raise UnavailableError(
            f"{where}: the column {at.name} of type {at.type} can't be a cursor; use a column of whole numbers, times, "
            "dates, UUIDs, or texts that are times"
        )
    names = _payload(shape, context, before, where)
    key = [name for name in shape.primary_key if name != at.name]
    keys = [at.name, *key]
    read = {name for name in names.values() if name not in keys}
    if context.columns is None:
        # A function may read any column. If the table has a primary key, the digests still cover only the columns that
        # the dataset needs.
        wanted = {
            found.name
            for name in demanded_columns(context.dataset, context.source)
            if (found := _find(shape, name, where)) is not None
        }
        digested = sorted(read & wanted if shape.primary_key else read)
    else:
        digested = sorted(read)
    if before:
        digested = [name for name in before if name in columns and name not in keys]
    fetched = [*keys, *digested, *sorted(read - set(digested))]
    types = "\n".join([str(len(keys)), *(f"{name} {columns[name].type}" for name in [*keys, *digested])])
    digests = Digests(
        seed,
        keys=len(keys),
        digested=len(keys) + len(digested),
        columns=len(fetched),
        has_key=bool(shape.primary_key),
    )
    return Choice(
        cursor=at,
        kind=at.kind,
        fetched=[columns[name] for name in fetched],
        keys=len(keys),
        digested=[*keys, *digested],
        has_key=bool(shape.primary_key),
        payload_names={name: fetched.index(column) for name, column in names.items()},
        schema=blake2b(types.encode(), digest_size=8).hexdigest(),
        digests=digests,
    )


def _payload(shape: TableShape, context: SourceContext, before: Sequence[str], where: str) -> dict[str, str]:
    """Return the names of the payload, each with the column that it has."""
    # `before` has the table's own names of columns, which may be in another case than the names of the fields.
    folded = str.casefold if shape.folds_case else str
    known = {folded(name) for name in before}
    names: dict[str, str] = {} if context.columns is not None else {name: name for name in shape.columns}

    def find(name: str) -> str | None:
        return None if (found := _find(shape, name, where)) is None else found.name

    return names | needed_columns(
        context, find, where, shown=_shown(shape), must_stay=lambda name: folded(name) in known
    )


def _find(shape: TableShape, name: str, where: str) -> TableColumn | None:
    """Return the column of a name; it may be in another case if the database folds case."""
    if (exact := shape.columns.get(name)) is not None or not shape.folds_case:
        return exact
    found = [column for column in shape.columns.values() if column.name.casefold() == name.casefold()]
    if len(found) > 1:
        raise UnavailableError(
            f"{where}: the column {name} may be each of {', '.join(column.name for column in found)}; write its name "
            "in the case that the table has"
        )
    return found[0] if found else None


def _shown(shape: TableShape) -> str:
    names = list(shape.columns)
    more = f" and {len(names) - SHOWN_COLUMNS} more" if len(names) > SHOWN_COLUMNS else ""
    return f"{', '.join(names[:SHOWN_COLUMNS])}{more}"
