"""The links of all pages lead to files and headings that exist."""

from pathlib import Path

import pytest

from tests.markdown import DOCS, dead_links

ROOT = DOCS.parent
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("examples/*/README.md"), ROOT / "bench" / "README.md"]
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page) == []
