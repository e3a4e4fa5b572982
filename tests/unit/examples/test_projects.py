"""Each project of `examples/projects/` works as its author says it does."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from types import ModuleType

import pandas as pd
import pytest

from caraway.client.arguments import gather
from caraway.dtypes import types
from caraway.expr import nodes
from caraway.expr.nodes import NumberFunction, TimeUnit
from caraway.graph import operators, sources, specs, windows
from caraway.graph.envs import for_env
from caraway.graph.specs import Graph
from caraway.graph.validation.graphs import validate, validate_placement
from caraway.graph.wire.graphs import decode_graph, encode_graph
from caraway.testing import MockClient
from tests.projects import FOLDER, NAMES, Ask, Project, differences, load


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


@pytest.mark.slow
def test_rows_may_come_one_by_one_and_last_first(project: Project, client: MockClient) -> None:
    project.commit(client)
    for webhook, endpoint, row in project.rows_last_first():
        client.log(webhook, endpoint, pd.DataFrame([row]))
    assert not _wrong(project, client)


def test_definitions_survive_the_wire_and_are_valid_in_each_environment(project: Project) -> None:
    graph = gather(project.datasets, project.featuresets)
    data = encode_graph(graph)
    received = decode_graph(data)
    assert received == graph
    assert encode_graph(received) == data
    for env in {project.env, None if project.env is None else "another", *_named_envs(graph)}:
        validate_placement(received, env)
        validate(for_env(received, env))


def _named_envs(graph: Graph) -> set[str]:
    selectors = [source.env for dataset in graph.datasets for source in dataset.sources]
    selectors += [pipeline.env for dataset in graph.datasets for pipeline in dataset.pipelines]
    selectors += [sink.env for dataset in graph.datasets for sink in dataset.sinks]
    selectors += [extractor.env for featureset in graph.featuresets for extractor in featureset.extractors]
    return {name.removeprefix("~") for selector in selectors for name in selector}


# Not the business of any project: geometry of other kinds than spheres, and the smallest and largest units of time.
UNUSED = {
    NumberFunction.TAN,
    NumberFunction.ARCCOS,
    NumberFunction.ARCTAN,
    TimeUnit.YEAR,
    TimeUnit.MONTH,
    TimeUnit.MICROSECOND,
}


def test_together_the_projects_use_all_of_the_api() -> None:
    used = {part for name in NAMES for part in _parts(gather(load(name).datasets, load(name).featuresets))}
    known = {part for module in (nodes, operators, windows, sources, specs, types) for part in _vocabulary(module)}
    assert {str(part) for part in known - used - UNUSED} == set()
    assert {str(part) for part in UNUSED & used} == set()


def _parts(value: object) -> Iterator[object]:
    """Yield the classes and members of enumerations that a value is made of."""
    if isinstance(value, Enum):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _parts(item)
    elif is_dataclass(value):
        yield type(value)
        for field in fields(value):
            yield from _parts(getattr(value, field.name))


def _vocabulary(module: ModuleType) -> Iterator[object]:
    """Yield the dataclasses of a module and the members of its enumerations."""
    for found in vars(module).values():
        if isinstance(found, type) and found.__module__ == module.__name__:
            if issubclass(found, Enum):
                yield from found
            elif is_dataclass(found):
                yield found


def test_each_project_is_listed_in_the_readme() -> None:
    text = (FOLDER / "README.md").read_text()
    assert [name for name in NAMES if f"[{name}]({name}.py)" not in text] == []


@pytest.mark.parametrize(
    ("got", "told"),
    [
        ([1.0, None], []),
        ([1.0, pd.NA], []),
        ([1, None], ["F.x at now, row 0: 1, expected 1.0"]),
        ([1.5, None], ["F.x at now, row 0: 1.5, expected 1.0"]),
        ([1.0, 0.0], ["F.x at now, row 1: 0.0, expected None"]),
        ([1.0], ["F.x: 1 rows, expected 2"]),
    ],
)
def test_an_answer_that_differs_is_told(got: list[object], told: list[str]) -> None:
    ask = Ask(at=None, inputs={"F.k": [1, 2]}, outputs=["F.x"], expected={"F.x": [1.0, None]})
    assert differences(pd.DataFrame({"F.x": pd.Series(got, dtype=object)}), ask) == told
    assert differences(pd.DataFrame({"F.y": got}), ask) == ["columns ['F.y'], expected ['F.x']"]


def test_floats_may_differ_by_a_tolerance_inside_of_lists_and_structs_too() -> None:
    ask = Ask(at=None, inputs={"F.k": [1]}, outputs=["F.x"], expected={"F.x": [[{"a": 1.0}]]})
    answer = pd.DataFrame({"F.x": [[{"a": 1.25}]]})
    assert differences(answer, ask, tolerance=0.25) == []
    assert len(differences(answer, ask, tolerance=0.2)) == 1
