"""The sources that a server can read, and those that it refuses when a commit is planned."""

from dataclasses import replace
from typing import Any

import pytest

from caraway.dtypes.types import DATETIME, STRING
from caraway.errors import CommitError
from caraway.expr.nodes import Ref
from caraway.graph.connectors import FilesConnector, KafkaConnector, PubSubConnector, S3Connector, WebhookConnector
from caraway.graph.functions import PythonFunction
from caraway.graph.plan.planner import plan_graph
from caraway.graph.sources import Cdc, Computed, Constant, SampleSpec, SourceSpec
from caraway.graph.specs import Graph
from caraway.graph.systems import (
    CSVFormat,
    FilesSystem,
    KafkaSystem,
    PubSubSystem,
    RegisteredSystem,
    RegistryFormat,
    S3System,
    SchemaRegistry,
)
from caraway.state.blueprints import content_of
from tests.unit.graph.building import dataset

WEB = WebhookConnector(name="w", endpoint="e", retention_us=0)
SOURCE = SourceSpec(connector=WEB, cdc=Cdc.APPEND, disorder_us=0)
KAFKA = KafkaSystem(name="k", bootstrap_servers="b:1", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
PUBSUB = PubSubConnector(system=PubSubSystem(name="g", project_id="p", service_account_key="{}"), topic="t")


def plan(*sources: SourceSpec) -> Any:
    return plan_graph(Graph(datasets=(dataset("Clicks", {"user": STRING, "at": DATETIME}, sources=sources),)))


OBJECTS = S3Connector(system=S3System(name="lake"), bucket="b", prefix="p", format=CSVFormat())
ROLE = S3System(name="lake", role_arn="arn:aws:iam::1:role/reader")
FOLDER = FilesConnector(system=FilesSystem(name="drop"), container="/in", prefix="p", format="json")
TOPIC = KafkaConnector(system=KAFKA, topic="t")
REGISTRY = SchemaRegistry(format=RegistryFormat.AVRO, registry="confluent", url="http://r")
PROTOBUF = replace(REGISTRY, format=RegistryFormat.PROTOBUF)


def test_an_endpoint_that_is_named_twice_is_read_once() -> None:
    other = replace(SOURCE, connector=replace(WEB, endpoint="other"))
    read = [i.source.connector.endpoint for i in plan(SOURCE, other, replace(SOURCE, disorder_us=5)).ingests]
    assert read == ["e", "other"]


TAKEN = [
    replace(SOURCE, cdc=Cdc.DEBEZIUM),
    replace(SOURCE, preproc=(("user", Constant(value="x", dtype=STRING)),)),
    replace(SOURCE, where=Computed(by=Ref(name="user"))),
    replace(SOURCE, sample=SampleSpec(rate=0.5), since_us=1, until_us=2),
    replace(SOURCE, connector=TOPIC),
    replace(SOURCE, connector=TOPIC, cdc=Cdc.DEBEZIUM),
    replace(SOURCE, connector=replace(TOPIC, format=REGISTRY), cdc=Cdc.DEBEZIUM),
    replace(SOURCE, connector=replace(TOPIC, format=PROTOBUF)),
    replace(SOURCE, connector=OBJECTS),
    replace(SOURCE, connector=replace(OBJECTS, system=ROLE), bounded=True, idleness_us=1),
    replace(SOURCE, connector=replace(OBJECTS, format="delta"), cdc=Cdc.NATIVE),
    replace(SOURCE, connector=replace(OBJECTS, format="hudi"), cdc=Cdc.UPSERT),
    replace(SOURCE, connector=replace(FOLDER, format="avro"), cdc=Cdc.DEBEZIUM),
]


@pytest.mark.parametrize("source", TAKEN)
def test_what_the_server_reads(source: SourceSpec) -> None:
    (ingest,) = plan(source).ingests
    assert (ingest.source, ingest.topic.dataset, ingest.dataset.name) == (source, "Clicks", "Clicks")


def test_a_source_goes_on_under_a_new_address_and_with_a_new_pickle() -> None:
    function = PythonFunction(name="f", pickled=b"1", source_code="f", includes=())
    source = replace(SOURCE, connector=TOPIC, where=Computed(by=function))
    moved = replace(TOPIC, system=replace(KAFKA, bootstrap_servers="other:1", password="changed"))
    again = replace(source, connector=moved, where=Computed(by=replace(function, pickled=b"2")))
    other = replace(source, connector=replace(TOPIC, topic="u"))
    first, second, third = (content_of(plan(given).ingests[0]) for given in (source, again, other))
    assert first == second
    assert first != third


REFUSED = [
    (replace(SOURCE, connector=replace(TOPIC, format="csv")), ["[Kafka: k]", "json, avro, protobuf only"]),
    (
        replace(SOURCE, connector=replace(TOPIC, format=PROTOBUF), cdc=Cdc.DEBEZIUM),
        ["Kafka", "debezium", "append, upsert"],
    ),
    (
        replace(SOURCE, connector=KafkaConnector(system=RegisteredSystem(kind=KafkaSystem.kind, name="x"), topic="t")),
        ["[Kafka: x]", "registered"],
    ),
    (replace(SOURCE, connector=PUBSUB, cdc=Cdc.DEBEZIUM), ["PubSub", "debezium", "append, upsert"]),
    (replace(SOURCE, cdc=Cdc.NATIVE), ["Webhook", "native", "append, debezium, upsert"]),
    (replace(SOURCE, connector=replace(OBJECTS, format="orc")), ["[S3: lake]", "csv, json, parquet, delta"]),
    (
        replace(SOURCE, connector=replace(OBJECTS, format="hudi", suffix="*"), cdc=Cdc.NATIVE),
        ["a Hudi table", "prefix"],
    ),
    (
        replace(SOURCE, connector=replace(OBJECTS, format="hudi", system=ROLE), cdc=Cdc.NATIVE),
        ["a Hudi table is opened by keys", "role_arn"],
    ),
    (replace(SOURCE, connector=replace(OBJECTS, format="delta", suffix="*"), cdc=Cdc.NATIVE), ["one folder", "prefix"]),
    (replace(SOURCE, connector=replace(FOLDER, format="delta", suffix="*"), cdc=Cdc.NATIVE), ["one folder", "prefix"]),
    (
        replace(SOURCE, connector=replace(OBJECTS, format="delta", system=ROLE), cdc=Cdc.NATIVE),
        ["[S3: lake]", "role_arn"],
    ),
]


@pytest.mark.parametrize(("kind", "library"), [("hudi", "hudi"), ("iceberg", "pyiceberg")])
def test_a_table_without_its_library_is_refused_with_the_extra(
    monkeypatch: pytest.MonkeyPatch, kind: str, library: str
) -> None:
    monkeypatch.setattr("caraway.graph.connectors.is_installed", lambda module: module != library)
    with pytest.raises(CommitError, match=rf"lacks the library {library}; .* pip install 'caraway\[{kind}\]'"):
        plan(replace(SOURCE, connector=replace(OBJECTS, format=kind), cdc=Cdc.NATIVE))


@pytest.mark.parametrize(("source", "facts"), REFUSED)
def test_what_the_server_refuses(source: SourceSpec, facts: list[str]) -> None:
    with pytest.raises(CommitError) as caught:
        plan(source)
    assert [fact for fact in ("Clicks", *facts) if fact not in str(caught.value)] == []


def test_one_name_for_two_systems_is_refused() -> None:
    with pytest.raises(CommitError, match="Webhook w has other settings"):
        plan(SOURCE, replace(SOURCE, connector=replace(WEB, retention_us=1)))
