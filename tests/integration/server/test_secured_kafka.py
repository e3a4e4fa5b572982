"""Tests of brokers that ask for passwords: with each mechanism and protocol, wrong ones, and changed ones."""

import secrets
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from caraway.connectors import Kafka
from caraway.dataplane.sinks import kafka as kafka_sink
from caraway.dataplane.sinks.changes import Change, Row
from caraway.dataplane.sinks.kafka import KafkaWriter
from caraway.dataplane.sinks.writer import Batch, SignIn
from caraway.dataplane.sources.kafka import KafkaReader
from caraway.dataplane.sources.reader import SourceBatch, SourceContext
from caraway.errors import CommitError, UnavailableError
from caraway.graph.connectors import KafkaConnector
from caraway.graph.plan.model import SinkPlan
from caraway.graph.secrets.resolver import resolver
from caraway.graph.sources import Cdc, SinkSpec, SourceSpec
from caraway.graph.specs import Graph
from caraway.graph.systems import KafkaSystem, Secretish, SecretRef
from caraway.integrations.aws import Secret
from caraway.process.settings.settings import SecretsSettings
from tests.integration.server.server_process import ServerProcess, end_of, eventually
from tests.integration.server.test_sources import readings_of
from tests.services.secured_kafka import MECHANISMS, PASSWORD, USER, SecuredKafka
from tests.timeouts import deadline_in
from tests.unit.dataplane.sinks.world import plan_of, writing
from tests.unit.dataplane.sources.decoding.records import DATASET

WAYS = [(protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in ("PLAIN", *MECHANISMS)]


@pytest.fixture(scope="module")
def topic(secured: SecuredKafka) -> str:
    """Return the name of a topic with one record."""
    name = f"secured-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": secured.open})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    producer = Producer({"bootstrap.servers": secured.open})
    producer.produce(name, b'{"n": 1}')
    assert producer.flush(30) == 0
    return name


def reader(
    secured: SecuredKafka,
    topic: str,
    way: tuple[str, str],
    *,
    password: Secretish = PASSWORD,
    ca_file: str | None = None,
) -> KafkaReader:
    protocol, mechanism = way
    listed = [Path(password.arn.removeprefix("file:"))] if isinstance(password, SecretRef) else []
    system = KafkaSystem(
        name="brokers",
        bootstrap_servers=secured.addresses[protocol],
        security_protocol=protocol,
        sasl_mechanism=mechanism,
        username=USER,
        password=password,
    )
    connector = KafkaConnector(system=system, topic=topic)
    context = SourceContext(
        name=f"test.{topic}",
        source=SourceSpec(connector=connector, cdc=Cdc.APPEND, disorder_us=0),
        dataset=DATASET,
        columns=None,
        resolve=resolver(str, SecretsSettings(files=tuple(listed))).resolve,
        ca_file=str(secured.ca_file) if ca_file is None else ca_file,
    )
    return KafkaReader(connector, context)


def first(made: KafkaReader) -> SourceBatch:
    made.seek({}, {})
    deadline = deadline_in(30)
    while (batch := made.poll(rows=10, size=1000, timeout_s=1.0)) is None:
        assert time.monotonic() < deadline
    return batch


@pytest.mark.spec("connectors:11:6")
@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_good_credentials(secured: SecuredKafka, topic: str, way: tuple[str, str]) -> None:
    with closing(reader(secured, topic, way)) as made:
        assert first(made).rows.row(0) == {"n": 1}


@pytest.mark.parametrize("way", [("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512")], ids=" ".join)
def test_a_wrong_password_is_named(secured: SecuredKafka, topic: str, way: tuple[str, str]) -> None:
    with (
        closing(reader(secured, topic, way, password="wrong-password")) as made,
        pytest.raises(UnavailableError, match=r"Kafka brokers at .*check .*sasl_plain_password") as caught,
    ):
        first(made)
    assert "wrong-password" not in str(caught.value)


def test_an_unknown_authority_is_named(secured: SecuredKafka, topic: str, tmp_path: Path) -> None:
    # A certificate of no authority that signed the broker's.
    with (
        closing(reader(secured, topic, ("SASL_SSL", "PLAIN"), ca_file="")) as made,
        pytest.raises(UnavailableError, match=r"check .*sources\.ca_file"),
    ):
        first(made)


def test_a_changed_password_takes_effect_at_the_next_connection(
    secured: SecuredKafka, topic: str, tmp_path: Path
) -> None:
    file, way = tmp_path / "password", ("SASL_PLAINTEXT", "SCRAM-SHA-256")
    file.write_text(PASSWORD)
    known = SecretRef(arn=f"file:{file}")
    with closing(reader(secured, topic, way, password=known)) as made:
        assert len(first(made).rows) == 1
    secured.set_password(way[1], "changed-password")
    try:
        with closing(reader(secured, topic, way, password=known)) as made, pytest.raises(UnavailableError):
            first(made)
        file.write_text("changed-password")
        with closing(reader(secured, topic, way, password=known)) as made:
            assert len(first(made).rows) == 1
    finally:
        secured.set_password(way[1], PASSWORD)


@pytest.mark.full(reason="starts a server twice; that the next connection uses a changed password is in each run")
def test_a_changed_password_needs_no_commit(
    own_server: Callable[..., ServerProcess], secured: SecuredKafka, tmp_path: Path, kafka: str
) -> None:
    file, mechanism, name = tmp_path / "password", "SCRAM-SHA-512", f"secured-{secrets.token_hex(4)}"
    file.write_text(PASSWORD)
    admin = AdminClient({"bootstrap.servers": secured.open})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    brokers = Kafka(
        name="brokers",
        bootstrap_servers=secured.addresses["SASL_PLAINTEXT"],
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=USER,
        sasl_plain_password=Secret(arn=f"file:{file}"),
    )
    settings = SecretsSettings(files=(file,))
    server = own_server(secrets=settings)
    server.commit(Graph(datasets=(readings_of(brokers.topic(name)).to_spec(),)))

    def status() -> dict[str, str]:
        (found,) = server.http.get("/status").json()["sources"]
        return dict(found)

    eventually(lambda: status()["state"] == "reading", server.said)
    assert server.stop() == 0
    secured.set_password(mechanism, "changed-password")
    try:
        server = own_server(secrets=settings)
        eventually(lambda: "check sasl_mechanism" in status()["error"], server.said)
        producer = Producer({"bootstrap.servers": secured.open})
        producer.produce(name, b'{"pot": 1, "moisture": 0.5, "at": 1700000000}')
        assert producer.flush(30) == 0
        file.write_text("changed-password")
        eventually(lambda: end_of(kafka, server.topic("Measured")) == 1, server.said)
        # The source says so a moment after it has handed over the row.
        eventually(lambda: (status()["state"], status()["error"]) == ("reading", ""), server.said)
    finally:
        secured.set_password(mechanism, PASSWORD)


def sink_of(secured: SecuredKafka, topic: str, **changes: Secretish) -> SinkPlan:
    system = KafkaSystem(
        name="brokers",
        bootstrap_servers=secured.addresses["SASL_SSL"],
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        username=USER,
        password=PASSWORD,
    )
    connector = KafkaConnector(system=replace(system, **changes), topic=topic)  # type: ignore[arg-type]
    return plan_of(sink=SinkSpec(connector=connector, cdc=Cdc.DEBEZIUM))


def test_a_sink_signs_in_and_a_failure_names_the_remedy(secured: SecuredKafka, topic: str) -> None:
    plan, sign_in = sink_of(secured, topic), SignIn(resolve=str, ca_file=str(secured.ca_file))
    kafka_sink.check(plan, sign_in)
    with closing(KafkaWriter(writing(plan, sign_in=sign_in, name=f"sink-{topic}"))) as writer:
        writer.write(Batch([Change(b"k", None, Row(1, ("k", 1.0, None)), 1, 0, 0)], {0: 1}))
        assert writer.positions() == {0: 1}
    with pytest.raises(CommitError, match=r"Kafka brokers at .*check .*sources\.ca_file"):
        kafka_sink.check(plan, SignIn(resolve=str))
    wrong = sink_of(secured, topic, password="wrong-password")
    with pytest.raises(CommitError, match=r"check .*sasl_plain_password") as caught:
        kafka_sink.check(wrong, sign_in)
    assert "wrong-password" not in str(caught.value)
    with pytest.raises(UnavailableError, match=r"check .*sasl_plain_password"):
        KafkaWriter(writing(wrong, sign_in=sign_in))
