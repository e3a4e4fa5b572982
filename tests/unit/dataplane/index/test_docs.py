"""The code in docs/inside/rocksdb_index.md runs."""

from pathlib import Path

import pytest

from tests.markdown import DOCS, blocks, run_page

PAGE = DOCS / "inside" / "rocksdb_index.md"


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert blocks(PAGE)
    run_page(PAGE, tmp_path, monkeypatch)
