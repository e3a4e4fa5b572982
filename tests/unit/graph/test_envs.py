from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dtypes.types import DATETIME, INT
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.connectors import WebhookConnector
from caraway.graph.envs import common_env, for_env, is_selected, require_env, selector
from caraway.graph.operators import Input
from caraway.graph.sources import Cdc, SinkSpec, SourceSpec
from caraway.graph.specs import AliasExtractor, Graph, PipelineSpec
from tests.unit.graph.building import dataset, featureset


def spec(row: int) -> Any:
    """Return the row of the tables of selectors; the empty list is in only one of the three."""
    tables = ("connectors:2.8",) if row == 6 else ("connectors:2.8", "featuresets:4.4", "datasets:5.4")
    return pytest.mark.spec(*(f"{table}:{row}" for table in tables))


@pytest.mark.parametrize(
    ("env", "none", "a", "c"),
    [
        pytest.param(None, True, True, True, marks=spec(1)),
        pytest.param("a", True, True, False, marks=spec(2)),
        pytest.param("~a", True, False, True, marks=spec(3)),
        pytest.param(["a", "b"], True, True, False, marks=spec(4)),
        pytest.param(["~a", "~b"], True, False, True, marks=spec(5)),
        pytest.param([], True, False, False, marks=spec(6)),
    ],
)
def test_which_environments_a_selector_takes(env: Any, none: bool, a: bool, c: bool) -> None:
    names = selector(env, "here")
    assert [is_selected(names, given) for given in (None, "a", "c")] == [none, a, c]


@pytest.mark.parametrize("env", ["", "a b", "~", ["a", "~b"], ["a", ""]])
def test_a_selector_that_is_refused(env: Any) -> None:
    with pytest.raises(DefinitionError, match="here"):
        selector(env, "here")


@pytest.mark.parametrize("env", [3, [3], {"a"}])
def test_a_selector_of_a_wrong_type(env: Any) -> None:
    with pytest.raises(DefinitionTypeError, match="here"):
        selector(env, "here")


@pytest.mark.parametrize("env", ["", "~a", "a b", 3, ["a"]])
def test_an_environment_that_cant_be_committed_for(env: Any) -> None:
    with pytest.raises(DefinitionError, match="one plain name"):
        require_env(env)


def test_every_part_that_has_an_environment_is_filtered() -> None:
    connector = WebhookConnector(name="w", endpoint="e", retention_us=1)
    source = SourceSpec(connector=connector, cdc=Cdc.APPEND, disorder_us=0, env=("a",))
    spec = dataset(
        "D",
        {"at": DATETIME},
        sources=(source,),
        pipelines=(PipelineSpec(name="p", inputs=("E",), operator=Input(dataset="E"), env=("a",)),),
        sinks=(SinkSpec(connector=connector, env=("a",)),),
    )
    features = featureset("S", {"x": INT}, AliasExtractor(name="e", input="T.x", output="S.x", env=("a",)))
    graph = Graph(datasets=(spec,), featuresets=(features,))
    assert for_env(graph, "a") == for_env(graph, None) == graph
    other = for_env(graph, "b")
    assert (other.datasets[0].sources, other.datasets[0].pipelines, other.datasets[0].sinks) == ((), (), ())
    # Datasets, featuresets and features are never filtered.
    assert other.featuresets[0].extractors == ()
    assert other.featuresets[0].features == features.features


selectors = st.one_of(
    st.none(), st.lists(st.sampled_from("abc"), max_size=2), st.lists(st.sampled_from(["~a", "~b", "~c"]), max_size=3)
).map(lambda env: selector(env, "here"))


@given(first=selectors, second=selectors)
def test_two_selectors_have_an_environment_in_common_iff_one_is_taken_by_both(
    first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    both = [env for env in ("a", "b", "c", "d") if is_selected(first, env) and is_selected(second, env)]
    common = common_env(first, second)
    assert (common is not None) == bool(both)
    assert common is None or (is_selected(first, common) and is_selected(second, common))
