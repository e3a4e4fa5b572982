"""Tests of the page on connectors: its code runs, and it names every connector."""

from pathlib import Path

import pytest

from caraway.connectors import DataConnector
from caraway.graph.specs import Graph
from caraway.graph.systems import SystemKind
from caraway.graph.validation.graphs import validate
from tests.markdown import DOCS, blocks, run_page

PAGE = DOCS / "connectors.md"


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = run_page(PAGE, tmp_path, monkeypatch)

    made = tuple(getattr(module, name).to_spec() for name in ("Weighing", "Hive", "Reading", "Heavy"))
    validate(Graph(datasets=made))
    assert [(len(dataset.sources), len(dataset.sinks)) for dataset in made] == [(1, 0), (1, 0), (1, 0), (0, 5)]
    connectors = [value for value in vars(module).values() if isinstance(value, DataConnector)]
    assert all(connector.spec() for connector in connectors)
    code = "\n".join(block.code for block in blocks(PAGE))
    assert [kind for kind in SystemKind if f"{kind}(" not in code] == []
