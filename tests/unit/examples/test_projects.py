"""Each project of `examples/projects/` works as its author says it does."""

import pandas as pd
import pytest

from caraway.client.arguments import gather
from caraway.graph.envs import for_env
from caraway.graph.validation import validate
from caraway.graph.wire import decode_graph, encode_graph
from caraway.testing import MockClient
from tests.projects import FOLDER, NAMES, Project, differences, load


@pytest.fixture
def client() -> MockClient:
    return MockClient()


@pytest.fixture(params=NAMES)
def project(request: pytest.FixtureRequest) -> Project:
    return load(request.param)


def _wrong(project: Project, client: MockClient) -> list[str]:
    return [
        difference
        for ask in project.asks
        for difference in differences(project.ask(client, ask), ask, project.tolerance)
    ]


def test_questions_have_the_expected_answers(project: Project, client: MockClient) -> None:
    project.commit(client)
    for webhook, endpoint, rows in project.logs:
        client.log(webhook, endpoint, pd.DataFrame(rows))
    assert project.asks
    assert not _wrong(project, client)


def test_rows_may_come_one_by_one_and_last_first(project: Project, client: MockClient) -> None:
    project.commit(client)
    for webhook, endpoint, row in project.rows_last_first():
        client.log(webhook, endpoint, pd.DataFrame([row]))
    assert not _wrong(project, client)


def test_definitions_survive_the_wire(project: Project) -> None:
    graph = for_env(gather(project.datasets, project.featuresets), project.env)
    data = encode_graph(graph)
    received = decode_graph(data)
    assert received == graph
    assert encode_graph(received) == data
    validate(received)


def test_each_project_is_listed_in_the_readme() -> None:
    text = (FOLDER / "README.md").read_text()
    assert [name for name in NAMES if f"[{name}]({name}.py)" not in text] == []
