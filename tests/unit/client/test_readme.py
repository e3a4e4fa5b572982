from pathlib import Path

import pytest

from caraway.client.client import build_graph
from caraway.graph.plan.planner import plan_graph
from caraway.graph.validation.graphs import validate
from caraway.testing import MockClient
from tests.markdown import DOCS, run_page

README = DOCS.parent / "README.md"


def test_the_code_of_the_readme_can_be_committed_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = run_page(README, tmp_path, monkeypatch)
    graph = build_graph([module.Departures, module.OriginDelays], [module.Origin])
    validate(graph)
    assert [job.dataset for job in plan_graph(graph).jobs] == ["OriginDelays"]
    assert module.serve(MockClient())["Origin.mean_delay"].tolist() == [12.0]
