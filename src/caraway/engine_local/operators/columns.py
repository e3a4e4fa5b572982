"""Operators that look at one row at a time: select, drop, rename, dropnull, explode."""

from collections.abc import Callable, Sequence

from caraway.engine_local.tables import Relation, Row, Table, Version
from caraway.errors import InvalidInputError


def each(table: Table, keys: Sequence[str], change: Callable[[Row], Row]) -> Table:
    """Change every row; the times stay as they are, so that deletes pass through."""
    return Relation(keys, [Version(change(row), begin_us, end_us) for row, begin_us, end_us in table.versions])


def keep(table: Table, keys: Sequence[str], verdicts: Sequence[object]) -> Table:
    """Keep the rows whose verdict is true.

    While a version that fails holds, its key has no row: it acts as a delete.
    """
    return Relation(keys, [version for version, kept in zip(table.versions, verdicts, strict=True) if kept])


def only(table: Table, keys: Sequence[str], columns: Sequence[str]) -> Table:
    """Keep some columns."""
    return each(table, keys, lambda row: {name: row[name] for name in columns})


def rename(table: Table, keys: Sequence[str], names: Sequence[tuple[str, str]]) -> Table:
    """Rename columns; `names` has old and new name of every one."""
    return each(table, keys, lambda row: {new: row[old] for old, new in names})


def drop_null(table: Table, keys: Sequence[str], columns: Sequence[str]) -> Table:
    """Keep the rows without a null in these columns."""
    return keep(table, keys, [all(row[name] is not None for name in columns) for row, _, _ in table.versions])


def explode(table: Table, columns: Sequence[str]) -> Table:
    """Make a row of each element of some list columns, which are walked in lock-step; of empty lists one with nulls.

    Raises:
        InvalidInputError: The lists of a row are not of one length.
    """
    versions = []
    for row, begin_us, end_us in table.versions:
        for element in _elements(row, columns):
            exploded = {**row, **dict(zip(columns, element, strict=True))}
            versions.append(Version(exploded, begin_us, end_us))
    return Relation((), versions)


def _elements(row: Row, columns: Sequence[str]) -> list[tuple[object, ...]]:
    lists = [value if isinstance(value, list) else [] for value in (row[name] for name in columns)]
    if len({len(items) for items in lists}) > 1:
        lengths = ", ".join(f"{name} has {len(items)}" for name, items in zip(columns, lists, strict=True))
        raise InvalidInputError(f"explode: lists that are exploded together must be of one length, but {lengths}")
    return list(zip(*lists, strict=True)) or [(None,) * len(columns)]
