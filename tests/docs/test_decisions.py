"""Decisions: each page has its answer and its status on top, and the index lists all of them under their titles."""

import re
from pathlib import Path

import pytest

from tests.markdown import DOCS, dead_links

FOLDER = DOCS / "decisions"
INDEX = FOLDER / "README.md"
PAGES = sorted(FOLDER.glob("0*.md"))
HEAD = re.compile(
    r"# (?P<number>\d+)\. (?P<title>.+)\n\n\*\*In short\.\*\* (?P<short>.+?)\n\n\*\*Status\.\*\* .+?\n\n",
    re.DOTALL,
)
# A reader who scans the page sees the answer without scrolling, so it has three lines at most.
MOST_LINES = 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_begins_with_its_answer_and_its_status(page: Path) -> None:
    head = HEAD.match(page.read_text())
    assert head is not None
    assert int(head["number"]) == int(page.name[:4])
    assert len(head["short"].splitlines()) <= MOST_LINES


def test_numbers_are_used_once_and_without_gaps() -> None:
    assert [int(page.name[:4]) for page in PAGES] == list(range(1, len(PAGES) + 1))


def test_the_index_lists_every_page_under_its_title() -> None:
    index = INDEX.read_text()
    for page in PAGES:
        head = HEAD.match(page.read_text())
        assert head is not None
        assert f"| {head['number']} | [{head['title']}]({page.name}) |" in index


@pytest.mark.parametrize("page", [INDEX, *PAGES], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    assert not dead_links(page)
