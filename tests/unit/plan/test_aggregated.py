"""Who reads an aggregate reads the topic of its rows, which an index of its own writes."""

from dataclasses import replace

from caraway.graph.operators import Aggregate, AggregateFunction, Emit, Filter, Input, Operator, Rename, Union
from caraway.graph.specs import DatasetSpec, Graph, IndexSpec
from caraway.graph.windows import ContinuousWindow, HoppingWindow, SessionWindow
from caraway.plan import GraphPlan, TopicKind, plan_graph
from caraway.plan.lowering import lowered
from tests.unit.engine_local.building import EVENTS, S, derived, events, spec_of

FOREVER = (spec_of(AggregateFunction.COUNT, None, HoppingWindow(length_us=None, stride_us=3600 * S), "n", EVENTS),)
HOURLY = HoppingWindow(length_us=3600 * S, stride_us=3600 * S, lookback_us=60 * S)


def counted(of: Operator = events, **parameters: object) -> Aggregate:
    count = spec_of(AggregateFunction.COUNT, None, HOURLY, "n", EVENTS)
    return replace(Aggregate(of=of, keys=("k",), aggregates=(count,)), **parameters)  # type: ignore[arg-type]


def indexed(spec: DatasetSpec) -> DatasetSpec:
    return replace(spec, index=IndexSpec(online=True, offline=False))


COUNTED = indexed(derived(counted(), "Counted"))
READER = derived(Input(dataset="Counted"), "Reader", sources=(EVENTS, COUNTED))


def planned(*derived_specs: DatasetSpec) -> GraphPlan:
    return plan_graph(Graph(datasets=(EVENTS, *derived_specs)))


def test_a_job_behind_an_aggregated_dataset_reads_its_rows() -> None:
    plan = planned(COUNTED, READER)
    counting, reading = plan.jobs
    served, emitting = plan.indexes
    (rows,) = reading.inputs
    assert counting.output.kind is TopicKind.CONTRIBUTIONS
    assert emitting.emits == rows
    assert rows in plan.topics
    assert (rows.dataset, rows.kind, rows.revised) == ("Counted", TopicKind.VERSIONS, True)
    assert [c.name for c in rows.schema.keys] == ["k"]
    assert [c.name for c in rows.schema.columns] == ["k", "n"]
    assert reading.output.revised
    assert {served.topic, emitting.topic} == {counting.output.name}
    assert served.asset != emitting.asset
    assert (served.dataset, emitting.dataset) == ("Counted", "Counted/rows")


def test_without_a_reader_nothing_is_emitted() -> None:
    alone = planned(COUNTED)
    assert [index.emits for index in alone.indexes] == [None]
    assert len(alone.topics) == 2
    # So what answers queries stays the same when a reader comes.
    assert planned(COUNTED, READER).indexes[0] == alone.indexes[0]


def test_steps_behind_an_aggregate_are_a_job_of_their_own() -> None:
    whole = derived(Rename(of=counted(), pairs=(("n", "m"),)), "Whole")
    plan = planned(whole)
    counting, rest = plan.jobs
    assert (counting.dataset, rest.dataset) == ("Whole/1", "Whole")
    assert counting.operator == counted()
    assert rest.operator == Rename(of=Input(dataset="Whole/1"), pairs=(("n", "m"),))
    assert [index.emits for index in plan.indexes] == list(rest.inputs)
    assert {topic.dataset for topic in plan.topics} == {"Events", "Whole/1", "Whole"}


def test_what_two_branches_have_in_common_is_computed_once() -> None:
    first = counted(aggregates=(), window=SessionWindow(gap_us=S))
    again = Aggregate(of=Rename(of=first, pairs=(("window", "w"),)), keys=("k",), aggregates=FOREVER)
    both = Union(left=again, right=again)
    pipeline = replace(COUNTED.pipelines[0], operator=both)
    cut = lowered(replace(COUNTED, name="Cut", pipelines=(pipeline,)), {"Events": EVENTS})
    assert [spec.name for spec in cut] == ["Cut/1", "Cut/2", "Cut"]
    assert cut[0].pipelines[0].operator == first
    renamed = Rename(of=Input(dataset="Cut/1"), pairs=(("window", "w"),))
    assert cut[1].pipelines[0].operator == replace(again, of=renamed)
    assert cut[2].pipelines[0].operator == Union(left=Input(dataset="Cut/2"), right=Input(dataset="Cut/2"))
    assert cut[2].pipelines[0].inputs == ("Cut/2",)


def test_corrections_of_rows_reach_as_far_as_windows_delay_them() -> None:
    plan = planned(COUNTED, READER)
    assert plan.jobs[1].horizon_us - plan.jobs[0].horizon_us == (3600 + 60) * S
    final = spec_of(AggregateFunction.COUNT, None, ContinuousWindow(length_us=60 * S), "n", EVENTS)
    whole = derived(Rename(of=counted(aggregates=(final,), emit=Emit.FINAL), pairs=(("n", "m"),)), "Final")
    assert planned(whole).jobs[1].horizon_us == 61 * S
    sessions = counted(aggregates=(), window=SessionWindow(gap_us=5 * S))
    assert planned(derived(Rename(of=sessions, pairs=(("window", "w"),)), "Sessions")).jobs[1].horizon_us == 5 * S


def test_a_pipeline_that_ends_in_an_aggregate_stays_whole() -> None:
    assert lowered(COUNTED, {"Events": EVENTS}) == (COUNTED,)
    assert lowered(EVENTS, {}) == (EVENTS,)
    assert Filter not in {type(job.operator) for job in planned(COUNTED).jobs}
