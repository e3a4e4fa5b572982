"""Operators on single rows: select, drop, rename, dropnull, explode."""

from collections.abc import Callable, Sequence

from caraway.compute.reference.tables import Relation, Row, Table, Version
from caraway.errors import InvalidInputError


def each(table: Table, keys: Sequence[str], change: Callable[[Row], Row]) -> Table:
    """Return the table with every row changed; the times at which rows begin and end stay as they are."""
    return Relation(keys, [Version(change(row), begin_us, end_us) for row, begin_us, end_us in table.versions])


def assigned(table: Table, keys: Sequence[str], names: Sequence[str], columns: Sequence[Sequence[object]]) -> Table:
    """Return the table with the values of `columns`, one for each row, under these names."""
    return Relation(
        keys,
        [
            Version({**row, **dict(zip(names, values, strict=True))}, begin_us, end_us)
            for (row, begin_us, end_us), *values in zip(table.versions, *columns, strict=True)
        ],
    )


def keep(table: Table, keys: Sequence[str], verdicts: Sequence[object]) -> Table:
    """Return the rows whose verdict is true.

    A version whose verdict isn't true acts as a delete: its key has no row while it holds.
    """
    return Relation(keys, [version for version, kept in zip(table.versions, verdicts, strict=True) if kept])


def only(table: Table, keys: Sequence[str], columns: Sequence[str]) -> Table:
    """Return the table with some columns only."""
    return each(table, keys, lambda row: {name: row[name] for name in columns})


def rename(table: Table, keys: Sequence[str], names: Sequence[tuple[str, str]]) -> Table:
    """Return the table with renamed columns; `names` has the old and the new name of every column."""
    return each(table, keys, lambda row: {new: row[old] for old, new in names})


def drop_null(table: Table, keys: Sequence[str], columns: Sequence[str]) -> Table:
    """Return the rows without a null in these columns."""
    return keep(table, keys, [all(row[name] is not None for name in columns) for row, _, _ in table.versions])


def explode(table: Table, columns: Sequence[str]) -> Table:
    """Return a row for each element of some list columns, taken together by position; if all are empty, one with nulls.

    Raises `InvalidInputError` if the lists of a row have different lengths.
    """
    versions = []
    for row, begin_us, end_us in table.versions:
        for element in elements(row, columns):
            exploded = {**row, **dict(zip(columns, element, strict=True))}
            versions.append(Version(exploded, begin_us, end_us))
    return Relation((), versions)


def elements(row: Row, columns: Sequence[str]) -> list[tuple[object, ...]]:
    """Return the values of the rows into which `explode` divides a row."""
    lists = [value if isinstance(value, list) else [] for value in (row[name] for name in columns)]
    if len({len(items) for items in lists}) > 1:
        lengths = ", ".join(f"{name} has {len(items)}" for name, items in zip(columns, lists, strict=True))
        raise InvalidInputError(f"explode: lists that are exploded together must be of one length, but {lengths}")
    return list(zip(*lists, strict=True)) or [(None,) * len(columns)]
