"""Pages from the results of statements that bring many pages: each row comes once, whatever the pages and ties are."""

from collections import Counter
from collections.abc import Iterator, Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from caraway.dataplane.sources.tables.database import Page, Row
from caraway.dataplane.sources.tables.scan import Result, Scan

PAGE = Page(columns=("at", "id"), keys=1, least=None, most=1_000, after=None, limit=1)


def read(values: Sequence[int], limits: Sequence[int], most: int) -> tuple[list[Row], int]:
    """Read a table by pages as the reader of tables does, and return the rows and the number of statements."""
    table = sorted((value, number) for number, value in enumerate(values))
    statements = 0

    def run(page: Page) -> Result:
        nonlocal statements
        statements += 1
        found = [
            row
            for row in table
            if row[0] <= page.most
            and (page.after is None or row[0] > page.after[0])
            and (page.least is None or row[0] >= page.least)
        ][: page.limit]

        def chunks() -> Iterator[Sequence[Row]]:
            for at in range(0, len(found), 2):
                yield found[at : at + 2]

        return Result(len(found), chunks())

    scan, taken, after = Scan(run, most), list[Row](), None
    for turn in range(10_000):
        limit = limits[turn % len(limits)]
        page = Page(columns=PAGE.columns, keys=1, least=None, most=PAGE.most, after=after, limit=limit)
        rows = [row for chunk in scan.rows(page) for row in chunk]
        assert len(rows) <= limit
        if len(rows) < limit:
            return taken + rows, statements
        last = rows[-1][0]
        whole = [row for row in rows if row[0] < last]
        if whole:
            taken, after = taken + whole, [whole[-1][0]]
            continue
        # The value fills the page.
        page = Page(columns=PAGE.columns, keys=1, least=last, most=last, after=None, limit=None)
        taken, after = taken + [row for chunk in scan.rows(page) for row in chunk], [last]
    raise AssertionError("it doesn't end")


@given(
    st.lists(st.integers(0, 12), max_size=80),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.integers(1, 40),
)
# A value fills the rest of a result whose limit cut it, and others come behind it.
@example([0, *[1] * 30, 2, 3], [2], 20)
def test_each_row_comes_once(values: list[int], limits: list[int], most: int) -> None:
    rows, _ = read(values, limits, most)
    assert Counter(rows) == Counter((value, number) for number, value in enumerate(values))


def test_a_statement_brings_many_pages() -> None:
    _, statements = read(range(1_000), [10], 500)
    # One of ten rows, and then one of 500 at a time.
    assert statements <= 5
