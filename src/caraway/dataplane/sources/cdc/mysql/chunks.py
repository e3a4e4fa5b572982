"""Chunks of a MySQL or MariaDB table, in the order of its primary key."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pymysql
from pymysql.cursors import SSCursor

from caraway.dataplane.sources.cdc.log import Chunk, Key
from caraway.dataplane.sources.cdc.mysql.catalog import Table
from caraway.dataplane.sources.cdc.mysql.connection import Queries, errors
from caraway.dataplane.sources.cdc.mysql.values import loader
from caraway.dataplane.sources.tables.mysql_connection import quote

# The number of rows that are fetched at a time. It is small, so that a chunk of large rows stays close to its limit of
# bytes.
FETCHED = 200
# The server's error if the table was altered between the beginning of the snapshot and the query.
TABLE_CHANGED = 1412


def key_of(row: Mapping[str, Any], names: Sequence[str]) -> Key:
    """Return the key of a row as texts: the same for rows of the table and of the log."""
    if len(names) == 1 and type(value := row.get(names[0])) is int:
        # Most keys are a single int, and this is the fastest way to convert one.
        return (str(value),)
    return tuple(_key_text(row.get(name)) for name in names)


def _key_text(value: Any) -> str | None:
    return value.hex() if isinstance(value, bytes) else None if value is None else str(value)


def read_chunk(
    queries: Queries, table: Table, after: Sequence[str | None] | None, *, rows: int, size: int
) -> Chunk | None:
    """Return rows behind a key, in the transaction of the connection; None if the table was altered meanwhile."""
    chunk = Chunk()
    loaders = [loader(name, base, table.kinds) for name, base in table.columns]
    names = [name for name, _ in table.columns]
    left = rows
    try:
        for statement, values in _statements(table, after):
            for found in _fetched(queries, f"{statement} LIMIT {left:d}", values):
                if chunk.size >= size:
                    # The cursor receives the rest of the result and discards it. The next chunk begins with these rows.
                    return chunk
                columns = {
                    name: _loaded(column, load)
                    for name, load, column in zip(names, loaders, zip(*found, strict=True), strict=True)
                }
                keys = [list(map(_key_text, columns[name])) for name in table.key_names]
                chunk.add(columns, keys, [repr(row).encode(errors="surrogatepass") for row in found], size)
            left = rows - len(chunk)
            if left <= 0:
                return chunk
    except pymysql.Error as error:
        if error.args and error.args[0] == TABLE_CHANGED:
            return None
        with errors(queries.where):
            raise
    chunk.last = True
    return chunk


def _statements(table: Table, after: Sequence[str | None] | None) -> Iterator[tuple[str, list[Any]]]:
    """Yield the statements whose rows, one after the other, are those behind a key.

    Servers don't use an index to compare several columns at once. So there is one statement for the rows that share
    all columns of the key but the last one, then one for those that share fewer.
    """
    columns = ", ".join(quote(name) for name, _ in table.columns)
    keys = [quote(name) for name in table.key_names]
    select = f"SELECT {columns} FROM {table.spelled}"  # noqa: S608 (names are quoted)
    order = f" ORDER BY {', '.join(keys)}"
    if after is None:
        yield select + order, []
        return
    values = [_value(text, base) for text, (_, base) in zip(after, table.key, strict=True)]
    for same in range(len(keys) - 1, -1, -1):
        conditions = [*[f"{key} = %s" for key in keys[:same]], f"{keys[same]} > %s"]
        yield f"{select} WHERE {' AND '.join(conditions)}{order}", values[: same + 1]


def _value(text: str | None, base: str) -> Any:
    """Return the value of a key column for a statement. As a text, a number would be compared as a float."""
    if text is None:
        return None
    if base in {"binary", "varbinary"}:
        return bytes.fromhex(text)
    if base == "decimal":
        return Decimal(text)
    return int(text) if base in {"tinyint", "smallint", "mediumint", "int", "bigint", "year"} else text


def _loaded(values: Sequence[Any], load: Callable[[Any], Any] | None) -> list[Any]:
    """Return the values of a column as rows have them."""
    return list(values) if load is None else [None if value is None else load(value) for value in values]


def _fetched(queries: Queries, statement: str, values: Sequence[Any]) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Yield the rows of a statement, some at a time."""
    with queries.connection.cursor(SSCursor) as cursor:
        cursor.execute(statement, values or None)
        while rows := cursor.fetchmany(FETCHED):
            yield rows
