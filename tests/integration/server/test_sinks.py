"""Sinks of a real server: Kafka, an HTTPS server with a CA of its own, and S3, with kills in between."""

# mypy: disable-error-code="attr-defined"

import ipaddress
import json
import os
import secrets
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from pathlib import Path
from random import Random
from typing import Any

import boto3
import orjson
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from moto.server import ThreadedMotoServer
from pyspark.sql import SparkSession

from caraway import Dataset, dataset, field, meta, pipeline
from caraway.connectors import HTTP, S3, Certificate, Kafka, Webhook, sink, source
from caraway.connectors.data_connector import DataConnector
from caraway.dataplane.addresses.limits import ConnectorLimits
from caraway.dataplane.addresses.networks import Networks
from caraway.dataplane.addresses.reach import Hold
from caraway.dataplane.sinks import kafka as kafka_writer
from caraway.dataplane.sinks.changes import Change, Row
from caraway.dataplane.sinks.kafka import KafkaWriter
from caraway.dataplane.sinks.remote import RemoteWriter
from caraway.dataplane.sinks.writer import Batch, Refusal
from caraway.datasets import Count, Sum
from caraway.dtypes import Continuous
from caraway.errors import UnavailableError
from caraway.graph.plan.model import on_branch
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from caraway.lib import inputs
from tests.integration.jobs import running_jobs
from tests.integration.server.server_process import TIMEOUT_S, ServerProcess, eventually
from tests.integration.spark.broker import Broker
from tests.unit.dataplane.sinks.world import writing

REGION = "eu-central-1"
USERS = 7


class Receiver:
    """An HTTPS server that takes envelopes, and fails as it is told to."""

    def __init__(self, folder: Path) -> None:
        self.taken: list[dict[str, Any]] = []
        self.statuses: list[int] = []
        self.unhealthy = False
        self.sizes: set[int] = set()
        self.refused = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(503 if outer.unhealthy or self.path != "/ok" else 200)

            def do_POST(self) -> None:
                body = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.headers["Content-Type"] == "application/json"
                assert (self.path, self.headers["x-team"]) == ("/changes", "bees")
                outer.sizes.add(len(body))
                if outer.refused and any(outer.refused in json.dumps(each) for each in body):
                    self._answer(422)
                    return
                status = outer.statuses.pop() if outer.statuses else 200
                if status in {0, 200}:
                    outer.taken += body
                # With 0 the changes are taken, and the answer is lost.
                self.close_connection = status == 0
                if status:
                    self._answer(status)

            def _answer(self, status: int) -> None:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name there)
                pass

        self.ca = _certify(folder)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _certify(folder: Path) -> str:
    """Write a certificate of 127.0.0.1 with its key, and return the CA that has signed it."""
    now = datetime.now(UTC)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("Test CA", "127.0.0.1")]

    def made(number: int) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(names[number])
            .issuer_name(names[0])
            .public_key(keys[number].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=number == 0, path_length=None), critical=True)
        )

    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    ca = made(0).sign(keys[0], hashes.SHA256())
    server = made(1).add_extension(address, critical=False).sign(keys[0], hashes.SHA256())
    pem = serialization.Encoding.PEM
    key = keys[1].private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.pem").write_bytes(key + server.public_bytes(pem))
    return ca.public_bytes(pem).decode()


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    found = Receiver(tmp_path)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a new bucket; the server finds S3 and its own identity in the environment."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_ENDPOINT_URL": s3,
        "AWS_REGION": REGION,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    name = f"lake-{secrets.token_hex(4)}"
    client = boto3.client("s3", endpoint_url=s3, region_name=REGION)
    client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    return name


@pytest.fixture
def topic(kafka: str) -> str:
    name = f"sink-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    return name


def brokers(kafka: str) -> Kafka:
    return Kafka(name="brokers", bootstrap_servers=kafka, security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")


def hooks(receiver: Receiver, ca: str | None = None) -> HTTP:
    return HTTP(name="hooks", host=receiver.url, healthz="ok", ca_cert=Certificate(ca or receiver.ca))


def table_in(bucket: str) -> DataConnector:
    return S3(name="lake").bucket(bucket, prefix="totals/", format="delta")


def endpoint() -> str:
    """Return the endpoint of the running test: the broker of all tests has one topic for equal definitions."""
    test = os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0]
    return f"orders-{sha256(test.encode()).hexdigest()[:8]}"


def graph_of(*sinks: Callable[[Dataset], Dataset]) -> Graph:
    """Return an aggregate with sinks, whose rows a job computes (the fixture `jobs`)."""

    @meta(owner="a@b.co")
    @source(Webhook(name="shop").endpoint(endpoint()), disorder="1d", cdc="append")
    @dataset
    class Orders:
        who: str
        cents: int
        at: datetime = field(timestamp=True)

    @meta(owner="a@b.co")
    @dataset
    class Totals:
        who: str = field(key=True)
        cents: int
        orders: int
        at: datetime = field(timestamp=True)

        @pipeline
        @inputs(Orders)
        def total(cls, orders: Dataset) -> Any:
            return orders.groupby("who").aggregate(
                cents=Sum(of="cents", window=Continuous("forever")), orders=Count(window=Continuous("forever"))
            )

    for each in sinks:
        each(Totals)
    return Graph(datasets=(Orders.to_spec(), Totals.to_spec()))


class Shop:
    """Logs orders, and knows the totals."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)
        self.totals: dict[str, tuple[int, int]] = {}
        self._sent = 0

    def order(self, server: ServerProcess, count: int) -> None:
        rows = []
        for _ in range(count):
            who, cents = f"u{self._random.randrange(USERS)}", self._random.randrange(1000)
            self._sent += 1
            rows.append({"who": who, "cents": cents, "at": 1_700_000_000 + self._sent})
            known = self.totals.get(who, (0, 0))
            self.totals[who] = (known[0] + cents, known[1] + 1)
        body = {"webhook": "shop", "endpoint": endpoint(), "data": rows}
        # A request that is repeated with its key is taken once, also by the server after a kill.
        headers = {"Idempotency-Key": f"orders-{self._sent}"}

        def taken() -> bool:
            answer = server.http.post("/log", content=orjson.dumps(body), headers=headers)
            return answer.status_code == 200

        eventually(taken, server.said)


def read(kafka: str, topic: str) -> list[dict[str, Any]]:
    """Return the envelopes of committed transactions, in the order of each partition, with their keys checked."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    found, left = [], 2
    while left:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error() is not None:
            left -= 1
            continue
        envelope = orjson.loads(message.value() or b"")
        payload = envelope["payload"]
        row = payload["after"] or payload["before"]
        assert orjson.loads(message.key() or b"") == {"who": row["who"]}
        found.append(envelope)
    consumer.close()
    return found


def once(envelopes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what a consumer keeps that leaves out positions which it has seen."""
    kept: dict[tuple[int, int], dict[str, Any]] = {}
    for envelope in envelopes:
        kept.setdefault(place(envelope), envelope)
    return list(kept.values())


def place(envelope: Mapping[str, Any]) -> tuple[int, int]:
    source = envelope["payload"]["source"]["caraway"]
    assert (source["dataset"], source["version"], source["branch"]) == ("Totals", 1, "main")
    return source["partition"], source["offset"]


def totals_of(envelopes: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return the table that envelopes make, each of which follows the one before."""
    rows: dict[str, Any] = {}
    for envelope in envelopes:
        payload = envelope["payload"]
        before, after = payload["before"], payload["after"]
        who = (after or before)["who"]
        assert rows.get(who) == before
        if after is None:
            del rows[who]
        else:
            rows[who] = after
    return {who: (row["cents"], row["orders"]) for who, row in rows.items()}


def totals_in(bucket: str) -> dict[str, tuple[int, int]]:
    url = f"s3://{bucket}/totals_main_v1"
    try:
        rows = DeltaTable(url).to_pyarrow_table().to_pylist()
    except TableNotFoundError:
        return {}
    assert len({row["buyer"] for row in rows}) == len(rows)
    return {row["buyer"]: (row["cents"], row["orders"]) for row in rows}


def states(server: ServerProcess) -> dict[str, dict[str, Any]]:
    return {status["sink"].split(":")[0].strip("["): status for status in server.http.get("/status").json()["sinks"]}


def refused_totals(server: ServerProcess) -> list[tuple[int, int]]:
    """Return the totals that the dead letters hold."""
    listed = server.http.get("/dead_letters", params={"dataset": "Totals", "limit": 100}).json()["dead_letters"]
    rows = [server.http.get(f"/dead_letters/{letter['id']}").json()["row"] for letter in listed]
    return [(row["cents"], row["orders"]) for row in rows]


def check_all(
    server: ServerProcess, shop: Shop, kafka: str, topic: str, outside: tuple[Receiver, str]
) -> tuple[int, int]:
    """Wait until all sinks have the table; return how many changes Kafka and the HTTP server have."""
    receiver, bucket = outside
    eventually(lambda: totals_in(bucket) == shop.totals, lambda: f"{totals_in(bucket)} {shop.totals} {server.said()}")

    def kafka_has() -> bool:
        return totals_of(read(kafka, topic)) == shop.totals

    eventually(kafka_has, server.said)
    eventually(lambda: totals_of(once(list(receiver.taken))) == shop.totals, server.said)
    envelopes = read(kafka, topic)
    assert max(Counter(map(place, envelopes)).values()) == 1
    return len(envelopes), len(receiver.taken)


def all_sinks(kafka: str, topic: str, receiver: Receiver, bucket: str) -> Graph:
    return graph_of(
        sink(brokers(kafka).topic(topic), cdc="debezium"),
        sink(hooks(receiver).path("changes", limit=3, headers={"x-team": "bees"}), cdc="debezium"),
        sink(table_in(bucket), how="incremental", every="1s", renames={"who": "buyer"}),
    )


@pytest.mark.usefixtures("jobs")
@pytest.mark.spec("connectors:4.2:1", "connectors:4.2:2", "connectors:4.2:3")
def test_sinks_have_the_table_after_a_kill(
    own_server: Callable[[], ServerProcess], kafka: str, topic: str, receiver: Receiver, bucket: str
) -> None:
    server, shop = own_server(), Shop()
    server.commit(all_sinks(kafka, topic, receiver, bucket))
    receiver.statuses = [200, 503, 200, 0, 200, 429, 200]
    for _ in range(4):
        shop.order(server, 5)
    eventually(lambda: len(receiver.taken) > 2, server.said)
    server.kill()
    server = own_server()
    shop.order(server, 20)
    check_all(server, shop, kafka, topic, (receiver, bucket))
    assert max(receiver.sizes) <= 3
    found = states(server)
    assert {name: status["guarantee"] for name, status in found.items()} == {
        "Kafka": "exactly once",
        "HTTP": "at least once",
        "S3": "exactly once",
    }
    assert found["S3"]["target"] == f"s3://{bucket}/totals_main_v1"
    metrics = server.http.get("/metrics").text
    assert 'caraway_sink_rows_total{dataset_name="Totals",sink_name="brokers",status="written"}' in metrics
    assert 'caraway_sink_backlog{dataset_name="Totals",sink_name="hooks"} 0.0' in metrics
    # Changes that the other side refuses become dead letters, and the rest goes on.
    receiver.refused = '"u3"'
    shop.order(server, 30)
    # The newest change of u3 must be refused too: if it were taken, no older one would be sent again.
    eventually(lambda: shop.totals["u3"] in refused_totals(server), server.said)
    letters = server.http.get("/dead_letters", params={"dataset": "Totals"}).json()["dead_letters"]
    assert "422" in letters[0]["reason"]
    shown = server.http.get(f"/dead_letters/{letters[0]['id']}").json()
    assert shown["stage"] == "sink"
    assert {"partition", "offset", "sink"} <= shown.keys()
    # When the server takes them again, they are sent again, unless a later change of their row counts.
    receiver.refused = ""
    eventually(lambda: states(server)["HTTP"]["backlog"] == 0, server.said)
    listed = server.http.get("/dead_letters", params={"dataset": "Totals", "limit": 100}).json()["dead_letters"]
    assert all(letter["replayable"] for letter in listed)
    answers = [server.http.post(f"/dead_letters/{letter['id']}/replay", json={}).json() for letter in listed]
    assert all(answer["outcome"] == "sent" or answer["outcome"].startswith("left out: a later") for answer in answers)
    newest = {each["payload"]["after"]["who"]: each["payload"]["after"] for each in receiver.taken}
    assert {who: (row["cents"], row["orders"]) for who, row in newest.items()} == shop.totals
    again = [answer["id"] for answer in answers if answer["outcome"] == "sent"]
    assert again
    repeated = server.http.post(f"/dead_letters/{again[0]}/replay", json={}).json()
    assert (repeated["already"], repeated["outcome"]) == (True, "sent")
    repair = server.http.post(f"/dead_letters/{again[0]}/replay", json={"row": {"who": "u3"}})
    assert (repair.status_code, "can't be repaired" in repair.text) == (400, True)
    # A commit without sinks ends them.
    server.commit(graph_of())
    eventually(lambda: states(server) == {}, server.said)


@pytest.mark.spec("connectors:11:17")
def test_a_commit_is_refused_if_a_sink_cannot_be_written(
    own_server: Callable[[], ServerProcess], kafka: str, receiver: Receiver, tmp_path: Path
) -> None:
    server = own_server()

    def refusal(*sinks: Callable[[Dataset], Dataset]) -> str:
        with pytest.raises(AssertionError) as caught:
            server.commit(graph_of(*sinks))
        return str(caught.value)

    (tmp_path / "other").mkdir()
    other = _certify(tmp_path / "other")
    for ca in (other, "no certificate"):
        text = refusal(sink(hooks(receiver, ca).path("changes"), cdc="debezium"))
        assert "Totals" in text
        assert "certificate" in text.lower()
    receiver.unhealthy = True
    assert "503" in refusal(sink(hooks(receiver).path("changes"), cdc="debezium"))
    assert "there is no topic nowhere" in refusal(sink(brokers(kafka).topic("nowhere"), cdc="debezium"))
    assert server.http.get("/status").json()["datasets"] == []


class NoTransactions(Producer):
    """A producer of a user who has no right to transactions."""

    def init_transactions(self, *_: object) -> None:
        raise KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))


@pytest.mark.spec("connectors:4.2:1")
@pytest.mark.parametrize("transactional", [True, False])
def test_a_change_that_the_broker_refuses_becomes_a_dead_letter_and_the_others_are_written(
    kafka: str, topic: str, transactional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not transactional:
        monkeypatch.setattr(kafka_writer, "Producer", NoTransactions)
    admin = AdminClient({"bootstrap.servers": kafka})
    small = ConfigEntry("max.message.bytes", "3000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[small])
    admin.incremental_alter_configs([resource])[resource].result()
    graph = graph_of(sink(brokers(kafka).topic(topic), cdc="debezium"))
    plan = on_branch(plan_graph(graph), "main").sinks[0]
    refused: list[Refusal] = []
    writer = KafkaWriter(writing(plan, name=f"sink-{topic}", refuse=refused.extend))
    texts = ["a", secrets.token_hex(9_000), "b"]
    changes = [
        Change(text.encode(), None, Row(1, (text, number, 1)), 1, 0, number) for number, text in enumerate(texts)
    ]
    writer.write(Batch(changes, {0: 3}))
    assert [refusal.change.offset for refusal in refused] == [1]
    assert sorted(place(envelope) for envelope in read(kafka, topic)) == [(0, 0), (0, 2)]
    assert writer.positions() == ({0: 3} if transactional else {})
    assert writer.guarantee == ("exactly once" if transactional else "at least once")
    # A second owner ends the rights of the first one.
    if transactional:
        other = KafkaWriter(writer._writing)
        assert other.positions() == {0: 3}
        with pytest.raises(UnavailableError):
            writer.write(Batch([replace(changes[0], offset=3)], {0: 4}))
        other.close()
        assert len(read(kafka, topic)) == 2
    writer.close()


def test_the_position_of_a_topic_of_many_partitions_fits_or_names_the_remedy(kafka: str, topic: str) -> None:
    """The broker of this test takes 4,096 bytes beside an offset, which is Kafka's default."""
    random = Random(7)
    offsets = {partition: random.randrange(10**8, 10**9) for partition in range(2_000)}
    plan = on_branch(plan_graph(graph_of(sink(brokers(kafka).topic(topic), cdc="debezium"))), "main").sinks[0]
    change = Change(b"a", None, Row(1, ("a", 1, 1)), 1, 0, 0)
    with closing(KafkaWriter(writing(plan, name=f"sink-{topic}"))) as writer:
        some = dict(list(offsets.items())[:400])
        writer.write(Batch([change], some))
        assert writer.positions() == some
        with pytest.raises(UnavailableError, match=r"offset\.metadata\.max\.bytes"):
            writer.write(Batch([change], offsets))


def test_writers_in_processes_of_their_own_write_to_each_system(
    kafka: str, topic: str, receiver: Receiver, bucket: str
) -> None:
    hold = Hold(Networks((ip_network("0.0.0.0/0"),), True, tuple))
    changes = [Change(text.encode(), None, Row(1, (text, number, 1)), 1, 0, number) for number, text in enumerate("ab")]
    plans = on_branch(plan_graph(all_sinks(kafka, topic, receiver, bucket)), "main").sinks
    for plan in plans:
        with (
            hold.held(),
            closing(RemoteWriter(writing(plan, name=f"sink-{topic}"), ConnectorLimits(memory_mb=1024))) as writer,
        ):
            given = Batch(changes, {0: 2})
            writer.write(given)
            assert given.sent == 2
            assert writer.positions() == ({} if writer.guarantee == "at least once" else {0: 2})
    assert sorted(place(envelope) for envelope in read(kafka, topic)) == [(0, 0), (0, 1)]
    assert sorted(each["payload"]["after"]["who"] for each in receiver.taken) == ["a", "b"]
    (target,) = (plan.target for plan in plans if plan.target.startswith("s3://"))
    options = {"AWS_ALLOW_HTTP": "true"}
    assert sorted(DeltaTable(target, storage_options=options).to_pyarrow_table()["buyer"].to_pylist()) == ["a", "b"]


KILLS = 8


@pytest.mark.full(reason="a server and a broker of its own, killed eight times at random moments, for two minutes")
@pytest.mark.timeout(900)
def test_kills_at_random_moments_lose_and_double_nothing(
    apart: Callable[[], tuple[ServerProcess, Broker]], receiver: Receiver, bucket: str, spark: SparkSession
) -> None:
    random, (server, broker) = Random(7), apart()
    with running_jobs(server.settings, spark):
        _kill_at_random(random, server, broker, receiver, bucket)


def _kill_at_random(random: Random, server: ServerProcess, broker: Broker, receiver: Receiver, bucket: str) -> None:
    kafka = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic("changes", 2, 1)])["changes"].result()
    server.commit(all_sinks(kafka, "changes", receiver, bucket))
    shop = Shop(7)
    for kill in range(KILLS):
        taken = len(receiver.taken)
        receiver.statuses = [random.choice([200, 200, 200, 0, 503]) for _ in range(20)]
        shop.order(server, 40)
        # The moment of the kill depends on how far the HTTP sink is.
        after = random.randrange(1, 5)
        eventually(lambda taken=taken, after=after: len(receiver.taken) >= taken + after, server.said)  # type: ignore[misc]
        if kill % 3 == 2:
            broker.kill()
            broker.start()
        else:
            server.kill()
            server.start()
    receiver.statuses = []
    shop.order(server, 40)
    changes, posted = check_all(server, shop, kafka, "changes", (receiver, bucket))
    # Every change is posted at least once, and those that are posted again have the positions that they had.
    assert {place(each) for each in read(kafka, "changes")} == {place(each) for each in receiver.taken}
    assert posted >= changes
    same: dict[tuple[int, int], object] = {}
    for each in receiver.taken:
        payload = {name: value for name, value in each["payload"].items() if name != "ts_ms"}
        assert same.setdefault(place(each), payload) == payload
