"""The rights of a token over the parts of an explanation: what may not be read isn't shown, however far away."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.apps.server.access.limits import Tags
from caraway.apps.server.handlers.why import hidden_parts
from caraway.compute.query.catalog import Catalog
from caraway.compute.query.executor import QueryEngine
from caraway.compute.query.model import Instants, QueryPlan, QueryReader, Rows
from caraway.compute.reference.changes import SourceChange
from caraway.compute.reference.engine import LocalEngine
from caraway.compute.why.explaining import Question, explain
from caraway.compute.why.in_process import EngineHistories
from caraway.compute.why.lookups import Listing
from caraway.graph.specs import Graph
from caraway.offline.why.running import hides
from caraway.state.permissions import ANYBODY, Caller, Grant, Mode
from tests.unit.compute.query import garden
from tests.unit.compute.query.garden import tagged

READ = frozenset({Mode.READ_DATA})
NOT_PRIVATE = Caller(account="ada", token_id="t", grants=(Grant(modes=READ, without=frozenset({"private"})),))
HOUR_US = 3_600_000_000
NOON_US = 1_767_268_800_000_000


def plan_of(graph: Graph, feature: str) -> QueryPlan:
    return QueryEngine(Catalog("", graph), garden.DictReader({})).plan(["Tap.pot"], [feature]).plan


def hidden(graph: Graph, feature: str, caller: Caller = NOT_PRIVATE, branch: str = "main") -> set[str]:
    found = hidden_parts(caller, branch, Tags.of(graph), graph, plan_of(graph, feature))
    assert all(
        reason == f"account {caller.account!r} may not read {name} on branch {branch!r}"
        for name, reason in found.items()
    )
    return set(found)


READINGS = {"Readings", "Readings.pot", "Readings.moisture", "Readings.at"}


def test_the_inputs_of_an_aggregation_are_hidden_though_its_value_may_be_read() -> None:
    graph = tagged(Readings=["private"], Moisture=["~private"])
    assert hidden(graph, "State.mean") == READINGS
    # Nothing of it is on the way to another feature.
    assert hidden(graph, "State.species") == set()


def test_a_field_is_hidden_though_the_feature_does_not_read_it() -> None:
    assert hidden(tagged(Pots__size=["private"]), "State.species") == {"Pots.size"}


def test_a_field_may_be_shown_of_a_dataset_that_is_hidden() -> None:
    graph = tagged(Readings=["private"], Moisture=["~private"], Readings__moisture=["~private"])
    assert hidden(graph, "State.mean") == READINGS - {"Readings.moisture"}


def test_the_datasets_of_an_extractor_are_on_the_way() -> None:
    graph = tagged(Rules__text=["private"], OnlineOnly=["private"])
    assert hidden(graph, "State.advice") == {"Rules.text"}


def test_whoever_may_read_everything_sees_everything() -> None:
    graph = tagged(Readings=["private"], Moisture=["~private"])
    everything = Caller(account="eve", token_id="t", grants=(Grant(modes=READ, branches=frozenset({"main"})),))
    assert hidden(graph, "State.mean", everything) == set()
    assert hidden(graph, "State.mean", ANYBODY) == set()
    # A grant holds on its own branches, and for its own modes.
    assert hidden(graph, "State.mean", everything, "copy") >= READINGS | {"Moisture", "Moisture.mean"}
    writer = Caller(account="wes", token_id="t", grants=(Grant(modes=frozenset({Mode.WRITE_DATA})),))
    assert hidden(graph, "State.mean", writer) >= READINGS | {"Moisture"}


WORDS = st.lists(st.sampled_from(["private", "~private", "money"]), max_size=2, unique=True)
NAMES = [
    *(spec.name for spec in garden.graph().datasets),
    *(f"{spec.name}__{field.name}" for spec in garden.graph().datasets for field in spec.fields),
]
GRANTS = st.builds(
    Grant,
    modes=st.sampled_from([READ, frozenset({Mode.WRITE_DATA})]),
    tags=st.none() | st.frozensets(st.sampled_from(["private", "money"]), max_size=2),
    without=st.frozensets(st.sampled_from(["private", "money"]), max_size=1),
    branches=st.none() | st.just(frozenset({"main"})) | st.just(frozenset({"copy"})),
)
# The datasets from which these features are computed, written by hand.
BEHIND = {
    "State.species": {"Pots"},
    "State.mean": {"Moisture", "Readings"},
    "State.score": {"Moisture", "Readings"},
    "State.advice": {"Pots", "Rules"},
    "State.answer": set(),
}


@given(
    tags=st.dictionaries(st.sampled_from(NAMES), WORDS, max_size=6),
    grants=st.lists(GRANTS, max_size=3),
    feature=st.sampled_from(sorted(BEHIND)),
)
def test_all_that_is_behind_a_feature_and_may_not_be_read_is_hidden(
    tags: dict[str, list[str]], grants: list[Grant], feature: str
) -> None:
    graph, caller = tagged(**tags), Caller(account="ada", token_id="t", grants=tuple(grants))
    known = Tags.of(graph)
    expected = set()
    for spec in graph.datasets:
        if spec.name in BEHIND[feature]:
            names = {spec.name: known.entities[spec.name]}
            names |= {f"{spec.name}.{field.name}": known.fields[f"{spec.name}.{field.name}"] for field in spec.fields}
            expected |= {
                name
                for name, own in names.items()
                if not any(grant.reaches(Mode.READ_DATA, "main") and grant.covers(own) for grant in grants)
            }
    assert hidden(graph, feature, caller) == expected


class EngineReader(QueryReader):
    """Reads an in-process engine."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine

    def read(self, source: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str], /) -> Rows:
        values, found = self._engine.lookup(source, keys, at_us, columns)
        return [list(column) for column in values], list(found)


@pytest.mark.parametrize("is_private", [False, True])
def test_an_explanation_shows_nothing_that_is_hidden(is_private: bool) -> None:
    graph = tagged(Readings=["private"] if is_private else [], Moisture=["~private"] if is_private else [])
    engine = LocalEngine(graph.datasets)
    rows = [{"pot": 7, "moisture": 0.123, "at": NOON_US}, {"pot": 7, "moisture": 0.625, "at": NOON_US + 1}]
    engine.apply_changes("Readings", [SourceChange(time_us=NOON_US, row=row) for row in rows])
    catalog = Catalog("", graph)
    refused = hidden_parts(NOT_PRIVATE, "main", Tags.of(graph), graph, plan_of(graph, "State.mean"))
    hides_part = hides(refused, catalog)
    question = Question(
        feature="State.mean", inputs={"Tap.pot": 7}, at_us=NOON_US + HOUR_US // 2, listing=Listing(limit=100)
    )
    histories = EngineHistories(engine, catalog.datasets, hides_part)
    why = explain(catalog, EngineReader(engine), histories, question, hidden=hides_part)
    # The value may be read, and is checked, in both cases.
    assert why.value == pytest.approx(0.374)
    assert why.check.same is True
    (lookup,) = [lookup for step in why.steps for lookup in step.lookups if lookup.dataset == "Moisture"]
    text = msgspec.json.encode(why).decode()
    assert ("0.123" in text) == ("0.625" in text) == (not is_private)
    assert (lookup.parts is None) == is_private
    assert (lookup.hidden is not None) == is_private
    (window,) = [window for window in lookup.windows if window.aggregate == "mean"]
    # Neither the number of the rows nor their extremes are shown.
    assert (window.count, window.least) == ((None, None) if is_private else (2, 0.123))
