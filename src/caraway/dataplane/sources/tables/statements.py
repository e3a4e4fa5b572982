"""The statements that read a table, for the dialects of SQL."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from caraway.dataplane.sources.tables.database import Page, Row

# Rows are fetched in chunks of this many, so that a chunk of large rows is small, too.
CHUNK_ROWS = 500


def page_statement(
    page: Page, table: str, quote: Callable[[str], str], *, select: Sequence[str] | None = None, marker: str = "%s"
) -> tuple[str, list[Any]]:
    """Return the statement of a page, which compares cursor and primary key as rows, and its parameters.

    Args:
        page: The page.
        table: The table, quoted.
        quote: Quotes a name.
        select: The expressions of the columns, if they aren't the columns themselves.
        marker: The text that stands for a parameter.
    """
    names = [quote(name) for name in page.columns]
    cursor = names[0]
    conditions, parameters = [f"{cursor} <= {marker}"], [page.most]
    if page.after is not None:
        keys = names[: min(page.keys, len(page.after))]
        if len(keys) == 1:
            conditions.append(f"{cursor} > {marker}")
        else:
            conditions.append(f"({', '.join(keys)}) > ({', '.join([marker] * len(keys))})")
        parameters += page.after[: len(keys)]
    if page.least is not None and page.after is None:
        conditions.append(f"{cursor} >= {marker}")
        parameters.append(page.least)
    return _select(page, table, select or names, names, conditions), parameters


def tie_statements(
    page: Page, table: str, quote: Callable[[str], str], marker: str = "%s"
) -> Iterator[tuple[str, list[Any]]]:
    """Yield the statements of a page for databases that don't use an index to compare rows.

    The first one has the rest of the rows with the last value of the cursor, the second one has what comes then.
    """
    names = [quote(name) for name in page.columns]
    cursor, after = names[0], page.after
    if after is not None and len(after) > 1:
        keys = names[1 : len(after)]
        greater, parameters = _greater(keys, after[1:], marker)
        conditions = [f"{cursor} = {marker}", greater]
        yield _select(page, table, names, names, conditions), [after[0], *parameters]
    conditions, parameters = [f"{cursor} <= {marker}"], [page.most]
    if after is not None:
        conditions.append(f"{cursor} > {marker}")
        parameters.append(after[0])
    elif page.least is not None:
        conditions.append(f"{cursor} >= {marker}")
        parameters.append(page.least)
    yield _select(page, table, names, names, conditions), parameters


def _greater(keys: Sequence[str], values: Sequence[Any], marker: str) -> tuple[str, list[Any]]:
    """Return the condition that columns are greater than values, the first column first."""
    first, *rest = keys
    if not rest:
        return f"{first} > {marker}", [values[0]]
    more, parameters = _greater(rest, values[1:], marker)
    # The condition `first >= value` follows from the rest, but lets the database use an index, unlike an OR alone.
    condition = f"({first} >= {marker} AND ({first} > {marker} OR {more}))"
    return condition, [values[0], values[0], *parameters]


def _select(page: Page, table: str, select: Sequence[str], names: Sequence[str], conditions: Sequence[str]) -> str:
    order = ", ".join(names[: page.keys])
    limit = "" if page.limit is None else f" LIMIT {page.limit:d}"
    return f"SELECT {', '.join(select)} FROM {table} WHERE {' AND '.join(conditions)} ORDER BY {order}{limit}"  # noqa: S608 (names are quoted)


def chunks(rows: Iterator[Row], limit: int | None) -> Iterator[list[Row]]:
    """Yield rows in lists.

    Args:
        rows: The rows of a statement.
        limit: How many there are at most. The statement is ended before the last of them are yielded, since a statement
            that isn't read to its end would be cancelled, which takes a connection of its own.
    """
    seen = 0
    while chunk := list(islice(rows, CHUNK_ROWS)):
        seen += len(chunk)
        if seen == limit:
            next(rows, None)
        yield chunk
