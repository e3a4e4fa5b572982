"""Plans of small graphs, and the laws of the names in them."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING, DataType, optional
from caraway.expr.nodes import Binary, BinaryOp, Literal, Ref
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.operators import Aggregate, Dedup, Filter, Input, Join, JoinKind, Latest
from caraway.graph.plan.model import IndexKind, JobMode, TopicKind
from caraway.graph.plan.planner import plan_graph
from caraway.graph.schemas import datasets_read
from caraway.graph.sources import Cdc
from caraway.graph.specs import (
    DatasetSpec,
    Graph,
    IndexSpec,
    Metadata,
    PipelineSpec,
)
from caraway.graph.windows import ContinuousWindow
from tests.unit.apps.server.control.graphs import HOUR_US, hooked
from tests.unit.graph.building import dataset

BOTH = IndexSpec(online=True, offline=True)


def _aggregate(
    function: AggregateFunction,
    into: str,
    dtype: DataType,
    *,
    of: str | None = None,
    window_us: int | None = None,
) -> AggregateSpec:
    return AggregateSpec(
        function=function, into=into, of=of, window=ContinuousWindow(length_us=window_us), default=None, dtype=dtype
    )


EVENTS = dataset(
    "Clicks",
    {"user": STRING, "ad": INT, "price": optional(FLOAT), "at": DATETIME},
    sources=(hooked("clicks", Cdc.APPEND),),
)
ADS = dataset(
    "Ads",
    {"budget": FLOAT, "since": DATETIME, "ad": INT},
    keys=["ad"],
    timestamp="since",
    index=BOTH,
    sources=(hooked("ads", Cdc.UPSERT, 3 * HOUR_US),),
)
CHEAP = Filter(
    of=Input(dataset="Clicks"),
    predicate=Binary(op=BinaryOp.LT, left=Ref(name="ad"), right=Literal(value=5, dtype=INT)),
)
SPEND = dataset(
    "Spend",
    {"user": STRING, "spent": FLOAT, "clicks": INT, "at": DATETIME},
    keys=["user"],
    index=BOTH,
    pipelines=(
        PipelineSpec(
            name="sum_up",
            inputs=("Clicks",),
            operator=Aggregate(
                of=CHEAP,
                keys=("user",),
                aggregates=(
                    _aggregate(AggregateFunction.SUM, "spent", FLOAT, of="price", window_us=HOUR_US),
                    _aggregate(AggregateFunction.COUNT, "clicks", INT),
                ),
            ),
        ),
    ),
)
JOINED = dataset(
    "LastAd",
    {"user": STRING, "ad": INT, "price": optional(FLOAT), "budget": optional(FLOAT), "at": DATETIME},
    keys=["user"],
    index=BOTH,
    pipelines=(
        PipelineSpec(
            name="enrich",
            inputs=("Clicks", "Ads"),
            operator=Latest(
                of=Join(
                    left=Input(dataset="Clicks"),
                    right="Ads",
                    how=JoinKind.LEFT,
                    left_on=("ad",),
                    right_on=("ad",),
                    within_low_us=None,
                    within_high_us=0,
                    fields=("budget",),
                ),
                keys=("user",),
            ),
        ),
    ),
)
GRAPH = Graph(datasets=(SPEND, JOINED, EVENTS, ADS))


def with_a_job(spec: DatasetSpec) -> DatasetSpec:
    """Return an aggregate over unique rows only, which takes a job."""
    (pipeline,) = spec.pipelines
    assert isinstance(pipeline.operator, Aggregate)
    unique = replace(pipeline.operator, of=Dedup(of=pipeline.operator.of, by=("user", "price")))
    return replace(spec, pipelines=(replace(pipeline, operator=unique),))


BY_JOBS = replace(GRAPH, datasets=(with_a_job(SPEND), JOINED, EVENTS, ADS))


def test_topics_have_the_kind_of_their_records() -> None:
    kinds = {topic.dataset: topic.kind for topic in plan_graph(BY_JOBS).topics}
    assert kinds == {
        "Spend": TopicKind.AGGREGATE_INPUTS,
        "LastAd": TopicKind.VERSIONS,
        "Clicks": TopicKind.EVENTS,
        "Ads": TopicKind.VERSIONS,
    }


def test_a_record_holds_keys_first_and_only_what_the_aggregates_need() -> None:
    schemas = {topic.dataset: topic.schema for topic in plan_graph(BY_JOBS).topics}
    assert [c.name for c in schemas["Ads"].columns] == ["ad", "budget"]
    assert [c.name for c in schemas["Spend"].columns] == ["user", "price"]
    assert schemas["Spend"].columns[1].dtype == optional(FLOAT)
    assert [c.name for c in schemas["Clicks"].keys] == []


def test_jobs_are_bound_to_topics_and_take_the_widest_horizon() -> None:
    plan = plan_graph(BY_JOBS)
    topics = {topic.dataset: topic for topic in plan.topics}
    jobs = {job.dataset: job for job in plan.jobs}
    assert set(jobs) == {"Spend", "LastAd"}
    assert jobs["LastAd"].inputs == (topics["Clicks"], topics["Ads"])
    assert jobs["LastAd"].output == topics["LastAd"]
    assert jobs["LastAd"].horizon_us == 3 * HOUR_US
    assert jobs["Spend"].mode is JobMode.REAL_TIME


def test_a_join_makes_its_topic_and_index_revisable() -> None:
    plan = plan_graph(GRAPH)
    assert {topic.dataset for topic in plan.topics if topic.revised} == {"LastAd"}
    assert {index.dataset: index.revised for index in plan.indexes} == {"Spend": False, "LastAd": True, "Ads": False}


def test_an_aggregate_over_a_keyed_dataset_can_be_revised() -> None:
    fleet = dataset(
        "Budgets",
        {"ad": INT, "n": INT, "since": DATETIME},
        keys=["ad"],
        timestamp="since",
        index=BOTH,
        pipelines=(
            PipelineSpec(
                name="p",
                inputs=("Ads",),
                operator=Aggregate(
                    of=Input(dataset="Ads"),
                    keys=("ad",),
                    aggregates=(_aggregate(AggregateFunction.COUNT, "n", INT),),
                ),
            ),
        ),
    )
    plan = plan_graph(Graph(datasets=(ADS, fleet)))
    assert plan.topics[1].revised


def test_indexes_and_ingests() -> None:
    plan = plan_graph(GRAPH)
    kinds = {index.dataset: index.kind for index in plan.indexes}
    assert kinds == {"Spend": IndexKind.AGGREGATE, "LastAd": IndexKind.VERSIONS, "Ads": IndexKind.VERSIONS}
    assert len({index.asset for index in plan.indexes}) == 3
    assert {(i.source.connector.identifier, i.topic.dataset) for i in plan.ingests} == {
        ("[Webhook: hook](endpoint=clicks)", "Clicks"),
        ("[Webhook: hook](endpoint=ads)", "Ads"),
    }
    assert [c.name for c in plan.indexes[2].fields] == ["ad", "budget", "since"]


def test_metadata_changes_no_name() -> None:
    described = replace(EVENTS, metadata=Metadata(owner="a@b.example", description="clicks"))
    assert plan_graph(GRAPH).jobs == plan_graph(replace(GRAPH, datasets=(SPEND, JOINED, described, ADS))).jobs


def test_a_change_upstream_renames_everything_below_it_and_nothing_else() -> None:
    changed = replace(ADS, version=2)
    before = {t.dataset: t.name for t in plan_graph(GRAPH).topics}
    after = {t.dataset: t.name for t in plan_graph(replace(GRAPH, datasets=(SPEND, JOINED, EVENTS, changed))).topics}
    assert {name for name in before if before[name] != after[name]} == {"Ads", "LastAd"}


@given(st.permutations(GRAPH.datasets))
def test_the_order_of_definitions_changes_no_name(datasets: list[DatasetSpec]) -> None:
    names = {topic.dataset: topic.name for topic in plan_graph(Graph(datasets=tuple(datasets))).topics}
    assert names == {topic.dataset: topic.name for topic in plan_graph(GRAPH).topics}


def test_inputs_are_named_once_in_order() -> None:
    assert datasets_read(JOINED.pipelines[0].operator) == ("Clicks", "Ads")
