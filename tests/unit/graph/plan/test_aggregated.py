"""A job that reads an aggregate reads the topic of its rows, which a separate index writes."""

from dataclasses import replace

from caraway.graph.aggregates import AggregateFunction
from caraway.graph.operators import Aggregate, Dedup, Emit, Filter, Input, Operator, Rename, Select, Union
from caraway.graph.plan.lowering import lowered
from caraway.graph.plan.model import GraphPlan, TopicKind
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import DatasetSpec, Graph, IndexSpec
from caraway.graph.windows import ContinuousWindow, HoppingWindow, SessionWindow
from tests.unit.compute.reference.building import EVENTS, S, derived, events, spec_of

FOREVER = (spec_of(AggregateFunction.COUNT, None, HoppingWindow(length_us=None, stride_us=3600 * S), "n", EVENTS),)
HOURLY = HoppingWindow(length_us=3600 * S, stride_us=3600 * S, lookback_us=60 * S)


# A dedup keeps rows, so an aggregate behind it needs a job.
UNIQUE = Dedup(of=events, by=("k",))


def counted(of: Operator = UNIQUE, **parameters: object) -> Aggregate:
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
    assert counting.output.kind is TopicKind.AGGREGATE_INPUTS
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
    # The index that answers queries stays the same when a reader is added.
    assert planned(COUNTED, READER).indexes[0] == alone.indexes[0]


def renamed(of: Operator, name: str = "m") -> Rename:
    return Rename(of=of, pairs=(("n", name),))


def test_steps_behind_an_aggregate_are_a_job_of_their_own() -> None:
    plan = planned(derived(renamed(counted()), "Whole"))
    counting, rest = plan.jobs
    assert (counting.dataset.partition("/")[0], rest.dataset) == ("Events", "Whole")
    assert counting.operator == counted(replace(UNIQUE, of=Select(of=events, columns=("k",))))
    assert rest.operator == renamed(Input(dataset=counting.dataset))
    assert [index.emits for index in plan.indexes] == list(rest.inputs)
    assert {topic.dataset for topic in plan.topics} == {"Events", counting.dataset, "Whole"}


def test_what_two_branches_have_in_common_is_computed_once() -> None:
    first = counted(aggregates=(), window=SessionWindow(gap_us=S))
    again = Aggregate(of=Rename(of=first, pairs=(("window", "w"),)), keys=("k",), aggregates=FOREVER)
    both = Union(left=again, right=again)
    pipeline = replace(COUNTED.pipelines[0], operator=both)
    one, two, cut = lowered(replace(COUNTED, name="Cut", pipelines=(pipeline,)), {"Events": EVENTS})
    assert cut.name == "Cut"
    assert one.pipelines[0].operator == first
    assert two.pipelines[0].operator == replace(again, of=Rename(of=Input(dataset=one.name), pairs=(("window", "w"),)))
    assert cut.pipelines[0].operator == Union(left=Input(dataset=two.name), right=Input(dataset=two.name))
    assert cut.pipelines[0].inputs == (two.name,)


def test_pipelines_that_begin_with_one_aggregate_share_it() -> None:
    one, other = derived(renamed(counted()), "One"), derived(renamed(counted(), "o"), "Other")
    both, alone = planned(one, other), planned(other)
    counting, first, second = both.jobs
    assert (first.dataset, second.dataset) == ("One", "Other")
    assert first.inputs == second.inputs
    (emitting,) = both.indexes
    assert (emitting.topic, emitting.emits) == (counting.output.name, first.inputs[0])
    # A later pipeline finds the shared job and topics, and those that exist already don't change.
    assert set(alone.jobs) < set(both.jobs)
    assert set(alone.topics) < set(both.topics)
    assert alone.indexes == both.indexes


def test_another_aggregate_or_another_history_is_another_one() -> None:
    one = derived(renamed(counted()), "One")
    later = HoppingWindow(length_us=7200 * S, stride_us=3600 * S)
    others = [
        derived(renamed(counted(aggregates=(replace(FOREVER[0], window=later),))), "Other"),
        replace(derived(renamed(counted()), "Other"), history_us=S),
    ]
    for other in others:
        assert len(planned(one, other).indexes) == 2


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
