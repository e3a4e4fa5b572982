"""One statement whose sorted result is read page by page, for warehouses.

A database with an index finds each page of a table quickly. A warehouse has no index: each statement reads all blocks
of the table that may have such rows, and some warehouses charge for that. So a statement brings many pages. The rows of
the last page are kept until the reader has passed them, because a page may end in the middle of a value of the cursor,
which is then read again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from caraway.dataplane.sources.tables.cursors import CursorKind
from caraway.dataplane.sources.tables.database import Page, Row

# A statement returns at most this many rows, because BigQuery sorts a result on a single machine.
MOST_ROWS = 1_000_000
# The first statement returns as many rows as a page has, and each further statement returns this many times more. So a
# sample, or a table of few rows, costs little.
GROWTH = 100
# Rows are handed over in chunks of this many, so that a chunk of large rows is small, too.
CHUNK_ROWS = 500


@dataclass(frozen=True, slots=True)
class Result:
    """The rows of a statement.

    Attributes:
        rows: How many there are.
        chunks: The rows, in chunks of some MB at most.
    """

    rows: int
    chunks: Iterator[Sequence[Row]]


class Scan:
    """Reads pages of a table whose rows have no primary key: `page.keys` is 1."""

    def __init__(self, run: Callable[[Page], Result], most: int = MOST_ROWS) -> None:
        """Prepare.

        Args:
            run: Runs the statement of a page.
            most: The most rows of a statement that brings several pages.
        """
        self._run, self._most = run, most
        self._limit = 0
        self._page: Page | None = None
        self._chunks: Iterator[Sequence[Row]] = iter(())
        # The fetched rows that the reader hasn't passed yet, and how many rows of the result aren't fetched yet.
        self._held: list[Row] = []
        self._to_come = 0
        self._is_cut = False

    def rows(self, page: Page) -> Iterator[Sequence[Row]]:
        """Yield the rows of a page; see `Database.rows`."""
        if page.limit is None:
            # A page without a limit has all rows of one cursor value, which may be many. So they aren't held in memory.
            yield from _divided(self._run(page).chunks)
            return
        floor = None if page.after is None else page.after[0]
        if not self._goes_on(page, floor):
            self._begin(page)
        at = 0
        while at < page.limit:
            if at == len(self._held) and not self._fetch(floor):
                return
            piece = self._held[at : min(page.limit, at + CHUNK_ROWS)]
            at += len(piece)
            yield piece

    def close(self) -> None:
        """Forget the result."""
        self._page, self._held, self._chunks = None, [], iter(())

    def _goes_on(self, page: Page, floor: Any) -> bool:
        """Return whether the result has the page; if so, the rows that the reader has passed are forgotten."""
        known = self._page
        if known is None or floor is None or (known.columns, known.most) != (page.columns, page.most):
            return False
        if known.after is not None and floor < known.after[0]:
            return False
        self._held = [row for row in self._held if row[0] > floor]
        if not self._held:
            # The value at which the page begins may have been read by a statement of its own. `_fetch` skips the rows
            # with this value.
            self._fetch(floor)
        # If the limit has cut the result, rows with its last value may be missing. So a page that needs more rows than
        # the result still has begins another statement.
        is_there = not self._is_cut or page.limit is None or len(self._held) + self._to_come >= page.limit
        self._page = replace(known, after=page.after)
        return is_there

    def _begin(self, page: Page) -> None:
        self.close()
        self._limit = min(self._most, max(page.limit or 0, self._limit * GROWTH))
        limit = max(self._limit, page.limit or 0)
        result = self._run(replace(page, limit=limit))
        self._page, self._chunks, self._to_come = page, _divided(result.chunks), result.rows
        self._is_cut = result.rows >= limit

    def _fetch(self, floor: Any) -> bool:
        """Fetch further rows, and return whether there were any."""
        for chunk in self._chunks:
            self._to_come -= len(chunk)
            # Rows of a value that was read by a statement of its own are passed over.
            rows = chunk if floor is None or chunk[0][0] > floor else [row for row in chunk if row[0] > floor]
            if rows:
                self._held += rows
                return True
        return False


def limits(page: Page, kind: CursorKind | None) -> Iterator[tuple[str, Any]]:
    """Yield the operators and values by which the cursor of a page is compared.

    Warehouses may have times of nine or more digits of a second, and Python's have six: a value of the cursor stands
    for all times of its microsecond.
    """
    is_time = kind is CursorKind.TIME
    # Python has no time after its latest one, to which a microsecond could be added. So that time is compared as it is.
    if is_time and page.most.replace(tzinfo=UTC) < datetime.max.replace(tzinfo=UTC):
        yield "<", page.most + timedelta(microseconds=1)
    else:
        yield "<=", page.most
    if page.after is not None:
        after = page.after[0]
        yield (">=", after + timedelta(microseconds=1)) if is_time else (">", after)
    elif page.least is not None:
        yield ">=", page.least


def _divided(chunks: Iterator[Sequence[Row]]) -> Iterator[Sequence[Row]]:
    for chunk in chunks:
        for at in range(0, len(chunk), CHUNK_ROWS):
            yield chunk[at : at + CHUNK_ROWS]
