"""Plans of sinks: their topics, their names on branches, and what can't be written."""

from dataclasses import replace

import pytest

from caraway.dtypes.types import DATETIME, INT, STRING
from caraway.errors import CommitError
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.connectors import HTTPConnector, KafkaConnector, S3Connector, TableConnector, WebhookConnector
from caraway.graph.operators import Aggregate, Input, Select
from caraway.graph.plan.model import GraphPlan, on_branch
from caraway.graph.plan.planner import plan_graph
from caraway.graph.sources import Cdc, SinkSpec, SourceSpec
from caraway.graph.specs import DatasetSpec, Graph, IndexSpec, PipelineSpec
from caraway.graph.systems import BigQuerySystem, HTTPSystem, KafkaSystem, RegisteredSystem, S3System
from caraway.graph.windows import ContinuousWindow
from caraway.state.blueprints import AssetKind, apply_generations, blueprints
from tests.unit.graph.building import dataset

KAFKA = KafkaConnector(
    system=KafkaSystem(name="k", bootstrap_servers="b:1", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN"),
    topic="t",
)
HOOKS = HTTPSystem(name="h", host="https://h", healthz="/ok", ca_cert="")
TOPIC = SinkSpec(connector=KAFKA, cdc=Cdc.DEBEZIUM)
HOOK = SinkSpec(connector=HTTPConnector(system=HOOKS, endpoint="/e"), cdc=Cdc.DEBEZIUM)
LAKE = S3Connector(system=S3System(name="s"), bucket="b", prefix="p/x/", format="delta")
TABLE = SinkSpec(connector=LAKE, how="incremental", create=True, every_us=10**6)
EVENTS = dataset(
    "Events",
    {"k": STRING, "at": DATETIME},
    sources=(
        SourceSpec(connector=WebhookConnector(name="w", endpoint="e", retention_us=0), cdc=Cdc.APPEND, disorder_us=0),
    ),
)
COUNTS = dataset(
    "Counts",
    {"k": STRING, "n": INT, "at": DATETIME},
    keys=["k"],
    version=2,
    index=IndexSpec(online=True, offline=True),
    pipelines=(
        PipelineSpec(
            name="count",
            inputs=("Events",),
            operator=Aggregate(
                of=Input(dataset="Events"),
                keys=("k",),
                aggregates=(
                    AggregateSpec(
                        function=AggregateFunction.COUNT,
                        into="n",
                        of=None,
                        window=ContinuousWindow(length_us=None),
                        default=None,
                        dtype=INT,
                    ),
                ),
            ),
        ),
    ),
)
COPIES = replace(
    EVENTS,
    name="Copies",
    sources=(),
    pipelines=(
        PipelineSpec(name="all", inputs=("Events",), operator=Select(of=Input(dataset="Events"), columns=("k",))),
    ),
)


def plan(*sinks: SinkSpec, of: DatasetSpec = COUNTS) -> GraphPlan:
    return plan_graph(Graph(datasets=(EVENTS, replace(of, sinks=sinks))))


def contents(found: GraphPlan) -> list[str]:
    return [blueprint.content for blueprint in blueprints(found) if blueprint.kind is AssetKind.SINK]


def test_the_rows_of_an_aggregate_with_a_sink_get_a_topic_that_an_index_writes() -> None:
    without, found = plan(), plan(TOPIC)
    assert not any(index.emits for index in without.indexes)
    (emitting,) = (index for index in found.indexes if index.emits is not None)
    assert emitting.emits is not None
    assert found.sinks[0].topic == emitting.emits
    assert found.sinks[0].topic in found.topics
    # The index that answers queries stays as it is, so that a new sink rebuilds nothing.
    assert set(without.indexes) < set(found.indexes)
    (sink,) = (blueprint for blueprint in blueprints(found) if blueprint.kind is AssetKind.SINK)
    assert any(content.startswith("index:") for content in sink.requires)
    assert f"topic:{emitting.emits.name}" in sink.requires


def test_a_sink_gets_the_output_of_its_job() -> None:
    sunk = plan_graph(Graph(datasets=(EVENTS, replace(COPIES, sinks=(TOPIC,)))))
    assert [job.dataset for job in sunk.jobs] == ["Copies"]
    assert sunk.sinks[0].topic == sunk.jobs[0].output


def test_branches_share_what_exists_and_create_tables_of_their_own() -> None:
    main, other = (on_branch(plan(TOPIC, HOOK, TABLE), name) for name in ("main", "try/it"))
    assert main.sinks[:2] == tuple(replace(sink, branch="main") for sink in other.sinks[:2])
    assert set(contents(main)) - set(contents(other)) == {f"sink:{main.sinks[2].sink_id}"}
    assert main.sinks[2].target == "s3://b/p/x_main_v2"
    assert other.sinks[2].target.startswith("s3://b/p/x_try_it_")
    assert on_branch(plan(TABLE), "try_it").sinks[0].target != other.sinks[2].target


def test_a_sink_is_known_by_what_it_writes() -> None:
    moved = replace(HOOK, connector=HTTPConnector(system=replace(HOOKS, host="https://i"), endpoint="/e", limit=3))
    assert contents(plan(moved)) == contents(plan(HOOK))
    assert contents(plan(replace(TABLE, every_us=5))) == contents(plan(TABLE))
    for other in (replace(TABLE, since_us=1), replace(TABLE, renames=(("k", "l"),))):
        assert contents(plan(other)) != contents(plan(TABLE))
    first = plan(TOPIC)
    named = apply_generations(first, {f"sink:{first.sinks[0].sink_id}": 2, f"topic:{first.sinks[0].topic.name}": 3})
    assert named.sinks[0].sink_id == f"{first.sinks[0].sink_id}.2"
    assert named.sinks[0].topic.name == f"{first.sinks[0].topic.name}.3"


BIG = BigQuerySystem(name="b", project_id="p", dataset_id="d", service_account_key="{}")


@pytest.mark.parametrize(
    ("connector", "reason"),
    [
        (TableConnector(system=BIG, table="t", cursor=None), "doesn't write BigQuery yet"),
        (replace(KAFKA, system=RegisteredSystem(kind=KafkaSystem.kind, name="k")), "no Kafka is registered"),
    ],
)
def test_a_sink_that_cannot_be_written_is_refused(connector: KafkaConnector | TableConnector, reason: str) -> None:
    with pytest.raises(CommitError, match=rf"Counts, sink \[.*{reason}"):
        plan(SinkSpec(connector=connector))


def test_two_sinks_never_write_one_table() -> None:
    with pytest.raises(CommitError, match="writes the same table"):
        plan(TABLE, replace(TABLE, every_us=1))
