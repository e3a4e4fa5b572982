import importlib.util
import re
import sys
from pathlib import Path

import pytest

from caraway.client.client import build_graph
from caraway.graph.validation import validate
from caraway.plan import plan_graph
from caraway.testing import MockClient

README = Path(__file__).parents[3] / "README.md"


def test_the_code_of_the_readme_can_be_committed_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [block] = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    path = tmp_path / "readme.py"
    path.write_text(block)
    spec = importlib.util.spec_from_file_location("readme", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "readme", module)
    spec.loader.exec_module(module)
    graph = build_graph([module.Departures, module.OriginDelays], [module.Origin])
    validate(graph)
    assert [job.dataset for job in plan_graph(graph).jobs] == ["OriginDelays"]
    assert module.serve(MockClient())["Origin.mean_delay"].tolist() == [12.0]


def test_the_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text())
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
