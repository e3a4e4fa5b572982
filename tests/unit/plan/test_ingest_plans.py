"""The sources that a server can read, and those that it refuses when a commit is planned."""

from dataclasses import replace
from typing import Any

import pytest

from caraway.dtypes.types import DATETIME, STRING
from caraway.errors import CommitError
from caraway.graph.connectors import (
    KafkaConnector,
    KafkaSystem,
    PubSubConnector,
    PubSubSystem,
    RegisteredSystem,
    SystemKind,
    WebhookConnector,
)
from caraway.graph.sources import Cdc, Constant, SampleSpec, SinkSpec, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec, Graph
from caraway.plan.planner import plan_graph

WEB = WebhookConnector(name="w", endpoint="e", retention_us=0)
SOURCE = SourceSpec(connector=WEB, cdc=Cdc.APPEND, disorder_us=0)
KAFKA = KafkaSystem(name="k", bootstrap_servers="b:1", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
PUBSUB = PubSubConnector(system=PubSubSystem(name="g", project_id="p", service_account_key="{}"), topic="t")


def plan(*sources: SourceSpec) -> Any:
    fields = (FieldSpec(name="user", dtype=STRING), FieldSpec(name="at", dtype=DATETIME, timestamp=True))
    clicks = DatasetSpec(name="Clicks", version=1, history_us=0, fields=fields, index=None, sources=sources)
    return plan_graph(Graph(datasets=(clicks,)))


def test_an_endpoint_that_is_named_twice_is_read_once() -> None:
    other = replace(SOURCE, connector=replace(WEB, endpoint="other"))
    assert [i.connector.endpoint for i in plan(SOURCE, other, replace(SOURCE, disorder_us=5)).ingests] == ["e", "other"]


REFUSED = [
    (replace(SOURCE, connector=KafkaConnector(system=KAFKA, topic="t")), ["[Kafka: k]", "webhook"]),
    (
        replace(SOURCE, connector=KafkaConnector(system=RegisteredSystem(kind=SystemKind.KAFKA, name="x"), topic="t")),
        ["[Kafka: x]", "registered"],
    ),
    (replace(SOURCE, connector=PUBSUB, cdc=Cdc.DEBEZIUM), ["PubSub", "debezium", "append, upsert"]),
    (replace(SOURCE, cdc=Cdc.NATIVE), ["Webhook", "native", "append, debezium, upsert"]),
    (replace(SOURCE, cdc=Cdc.DEBEZIUM), ["debezium", "yet"]),
    (replace(SOURCE, preproc=(("user", Constant(value="x", dtype=STRING)),)), ["preproc"]),
    (replace(SOURCE, sample=SampleSpec(rate=0.5), since_us=1, until_us=2), ["sample, since, until"]),
    (replace(SOURCE, bounded=True, idleness_us=1), ["bounded"]),
]


@pytest.mark.parametrize(("source", "facts"), REFUSED)
def test_what_the_server_refuses(source: SourceSpec, facts: list[str]) -> None:
    with pytest.raises(CommitError) as caught:
        plan(source)
    assert [fact for fact in ("Clicks", *facts) if fact not in str(caught.value)] == []


def test_one_name_for_two_systems_is_refused() -> None:
    with pytest.raises(CommitError, match="Webhook w has other settings"):
        plan(SOURCE, replace(SOURCE, connector=replace(WEB, retention_us=1)))


def test_sinks_are_refused_rather_than_left_unwritten() -> None:
    sink = SinkSpec(connector=KafkaConnector(system=KAFKA, topic="t"), cdc=Cdc.DEBEZIUM)
    fields = (FieldSpec(name="at", dtype=DATETIME, timestamp=True),)
    clicks = DatasetSpec(name="Clicks", version=1, history_us=0, fields=fields, index=None, sinks=(sink,))
    with pytest.raises(CommitError, match=r"Clicks, sink \[Kafka: k\].*doesn't write sinks yet"):
        plan_graph(Graph(datasets=(clicks,)))
