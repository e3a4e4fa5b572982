import json
from pathlib import Path

import httpx2
import pytest

from caraway.graph.validation.graphs import validate
from caraway.graph.wire.graphs import decode_commit
from tests.markdown import DOCS, run_page

ANSWERS = {
    "/api/v1/commit": {"summary": [""]},
    "/api/v1/log": {"accepted": 2, "rejected": 0},
    "/api/v1/wait": {"served": True, "lagging": [], "done": 2, "parts": 2, "since": {}},
    "/api/v1/query": {"Shopper.spent": [142.5], "Shopper.rich": [False]},
    "/api/v1/dataset/LastOrder/lookup": {"found": [True], "data": {"product": ["cup"], "large": [True]}},
}


def test_the_code_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, bytes] = {}

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked[request.url.path] = request.content
        return httpx2.Response(200, json=ANSWERS[request.url.path])

    real, transport = httpx2.Client, httpx2.MockTransport(answer)
    monkeypatch.setattr(httpx2, "Client", lambda **options: real(**{**options, "transport": transport}))
    run_page(DOCS / "learn" / "authoring.md", tmp_path, monkeypatch)

    assert asked.keys() == ANSWERS.keys()
    graph = decode_commit(asked["/api/v1/commit"]).graph
    validate(graph)
    assert [d.name for d in graph.datasets] == ["Orders", "Products", "Spending", "LastOrder"]
    logged = json.loads(asked["/api/v1/log"])["data"]
    assert logged["at"] == ["2024-05-01T10:00:00.000000Z", "2024-05-01T10:05:00.000000Z"]
