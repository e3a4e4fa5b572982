"""Profiles of columns in tables of Postgres: they are merged with those that are there, and read as one."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.kinds import Kind
from caraway.compute.profiles.tables import Profile

# The number of profiles that one statement reads or writes: some MB.
AT_ONCE = 500

# The values of a table's primary key, the second of which is the name of the column.
Key = tuple[Any, ...]
T = TypeVar("T")


def merge_profiles(connection: sa.Connection, table: sa.Table, columns: Mapping[Key, ColumnProfile]) -> None:
    """Merge profiles with those that a table has. The caller keeps other writers of the same rows out.

    Args:
        connection: A transaction.
        table: A table whose column `profile` has the bytes of profiles.
        columns: The profiles by the values of the table's primary key.
    """
    for keys in groups(columns):
        _merge(connection, table, {key: columns[key] for key in keys})


def _merge(connection: sa.Connection, table: sa.Table, columns: Mapping[Key, ColumnProfile]) -> None:
    names = list(table.primary_key.columns)
    query = sa.select(*names, table.c.profile).where(sa.tuple_(*names).in_(list(columns)))
    there = {tuple(row[:-1]): row[-1] for row in connection.execute(query)}
    rows = []
    for key, column in columns.items():
        profile = Profile({key[1]: column})
        if key in there:
            profile = Profile.from_bytes(there[key])
            profile.merge(Profile({key[1]: column}))
        values = {name.name: value for name, value in zip(names, key, strict=True)}
        rows.append({**values, "profile": profile.to_bytes()})
    statement = insert(table).values(rows)
    connection.execute(
        statement.on_conflict_do_update(index_elements=names, set_={"profile": statement.excluded.profile})
    )


def merged(connection: sa.Connection, query: sa.Select[Any]) -> dict[tuple[str, Kind], ColumnProfile]:
    """Return the profiles that a query finds, merged by the name of the column and its kind.

    They are read one by one, so there are never many in memory.

    Args:
        connection: A transaction.
        query: Returns the name of a column and the bytes of its profile.
    """
    found: dict[tuple[str, Kind], ColumnProfile] = {}
    for name, data in connection.execution_options(yield_per=AT_ONCE).execute(query):
        for column in Profile.from_bytes(data).columns.values():
            key = name, column.kind
            if key in found:
                found[key].merge(column)
            else:
                found[key] = column
    return found


def groups(items: Iterable[T], size: int = AT_ONCE) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`."""
    iterator = iter(items)
    while group := list(islice(iterator, size)):
        yield group
