"""The reference: its code runs and prints what it says, nothing public is left out, and links lead somewhere."""

from pathlib import Path

import pytest

from tests.markdown import DOCS, blocks, dead_links, linked_files, run_page

REFERENCE = DOCS / "reference"
README = DOCS.parent / "README.md"
PAGES = sorted(page for page in REFERENCE.rglob("*.md") if page.name != "README.md")


def _id(page: Path) -> str:
    return str(page.relative_to(DOCS).with_suffix(""))


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert blocks(page), "a page shows what it tells"
    run_page(page, tmp_path, monkeypatch)


def test_the_index_leads_to_every_page() -> None:
    reached, ahead = set(), {REFERENCE / "README.md"}
    while ahead:
        page = ahead.pop()
        reached.add(page)
        ahead |= {
            file for file in linked_files(page) if file.suffix == ".md" and file.is_relative_to(REFERENCE)
        } - reached
    assert [_id(page) for page in PAGES if page not in reached] == []


@pytest.mark.parametrize(
    "page", [README, *sorted(DOCS.rglob("*.md"))], ids=lambda page: str(page.relative_to(DOCS.parent))
)
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page) == []
