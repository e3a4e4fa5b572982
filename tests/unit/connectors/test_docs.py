"""The page on connectors: its code runs, and names every connector."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from caraway.connectors import DataConnector
from caraway.graph.connectors import SystemKind
from caraway.graph.specs import Graph
from caraway.graph.validation import validate

PAGE = Path(__file__).parents[3] / "docs" / "connectors.md"


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    # As a module, so that the source of its functions can be found.
    path = tmp_path / "connectors_page.py"
    path.write_text("\n".join(blocks))
    spec = importlib.util.spec_from_file_location("connectors_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "connectors_page", module)
    spec.loader.exec_module(module)

    made = tuple(getattr(module, name).to_spec() for name in ("Weighing", "Hive", "Reading"))
    validate(Graph(datasets=made))
    assert [len(dataset.sources) for dataset in made] == [1, 1, 1]
    connectors = [value for value in vars(module).values() if isinstance(value, DataConnector)]
    assert all(connector.spec() for connector in connectors)
    assert [kind for kind in SystemKind if f"{kind}(" not in "\n".join(blocks)] == []
