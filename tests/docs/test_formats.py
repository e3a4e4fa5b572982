"""The pages of formats: their worked examples run and print what the pages say."""

from pathlib import Path

import pytest

from tests.markdown import DOCS, blocks, dead_links, run_page

PAGES = [DOCS / f"{name}.md" for name in ("inside/records", "inside/rocksdb_index", "guides/why")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_worked_example_prints_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [block for block in blocks(page) if block.output]
    run_page(page, tmp_path, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    assert not dead_links(page)
