"""Streams as sources of a real server: however often it is killed, each of their records is in the dataset once."""

import logging
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from threading import Thread
from typing import Any

import boto3
import bson
import grpc
import msgspec
import orjson
import pytest
from google.pubsub_v1 import PublisherClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from moto.server import ThreadedMotoServer

from caraway import Dataset, connectors, dataset, field, meta
from caraway.config.settings import SourcesSettings
from caraway.connectors import Kinesis, Mongo, PubSub, source
from caraway.graph.specs import Graph
from tests.integration.server.server_process import ServerProcess, end_of, eventually, records
from tests.integration.sources import kinesis_server, mongo_server
from tests.integration.sources.mongo_server import MongoServer
from tests.integration.sources.pubsub_emulator import running_emulator
from tests.integration.sources.pubsub_server import PubSubServer, running

TOPIC = "projects/bees/topics/raw"
# Makes a server that is the only one of its test.
Launch = Callable[[dict[str, str]], ServerProcess]


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch, own_server: Callable[..., ServerProcess]) -> Launch:
    """Return a function that starts servers, one after the other, with the addresses of systems."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    return lambda endpoints: own_server(sources=SourcesSettings(endpoints=endpoints))


def measured_by(connector: connectors.DataConnector, every: str | None) -> Dataset:
    rounds: dict[str, Any] = {} if every is None else {"every": every}

    @meta(owner="a@b.co")
    @source(connector, disorder="1h", cdc="append", **rounds)
    @dataset
    class Measured:
        n: int
        moisture: float
        at: datetime = field(timestamp=True)

    return Measured


def row(n: int) -> bytes:
    return orjson.dumps({"n": n, "moisture": "dry" if n % 100 == 99 else n / 7, "at": 1_700_000_000 + n})


def check_each_once(
    kafka: str,
    start: Callable[[], ServerProcess],
    connector: connectors.DataConnector,
    put: Callable[[Sequence[int]], None],
    *,
    total: int,
    kills: int,
    after_kill: Callable[[], None] = lambda: None,
    every: str | None = None,
) -> None:
    """Put rows in parts while the server is killed after random times, and check that each is there once.

    Tables are read in rounds, one in each interval `every`, and their sources don't know how many rows they lag behind.
    """
    server = start()
    server.commit(Graph(datasets=(measured_by(connector, every).to_spec(),)))
    eventually(lambda: "Measured" in str(server.http.get("/status").json().get("topics")), server.said)
    made = server.topic("Measured")
    # The source begins with the first read.
    eventually(lambda: status_of(server)["polled_at"], server.said)
    chosen = random.Random(total)
    part = -(-total // (kills + 1))
    for begin in range(0, total, part):
        before = end_of(kafka, made)
        putting = Thread(target=put, args=(range(begin, min(begin + part, total)),))
        putting.start()
        if begin + part < total:
            eventually(lambda before=before: end_of(kafka, made) > before, server.said)  # type: ignore[misc]
            # The server is somewhere in the middle of the rows then.
            time.sleep(chosen.uniform(0, part / 50_000))
            server.kill()
            after_kill()
            server = start()
        putting.join()
    good = [n for n in range(total) if n % 100 != 99]

    def taken() -> Counter[int]:
        return Counter(msgspec.msgpack.decode(value)[7][0] for value in records(kafka, made))

    eventually(lambda: every is not None or status_of(server)["lag"] == 0, server.said, seconds=600)
    # Google's emulator answers more slowly the more messages wait.
    eventually(lambda: len(taken()) >= len(good), lambda: f"{len(taken())} {server.said()}", seconds=900)
    found = taken()
    assert max(found.values()) == 1
    assert found.keys() == set(good)
    letters = server.http.get("/dead_letters", params={"dataset": "Measured"}).json()["dead_letters"]
    assert letters
    assert all("moisture" in letter["reason"] or "float" in letter["reason"] for letter in letters)


def status_of(server: ServerProcess) -> dict[str, Any]:
    (status,) = server.http.get("/status").json()["sources"]
    found: dict[str, Any] = status
    return found


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


KINESIS = Kinesis(name="kin", role_arn="arn:aws:iam::123456789012:role/reader")


@pytest.mark.spec("connectors:11:15")
def test_a_killed_server_takes_each_record_of_a_stream_of_kinesis_once(kafka: str, launch: Launch, moto: str) -> None:
    client = boto3.client("kinesis", endpoint_url=moto, region_name="eu-west-1")
    name = f"stream-{secrets.token_hex(4)}"
    client.create_stream(StreamName=name, ShardCount=4)
    arn = client.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]["StreamARN"]

    def put(numbers: Sequence[int]) -> None:
        for begin in range(0, len(numbers), 500):
            entries = [{"Data": row(n), "PartitionKey": str(n)} for n in numbers[begin : begin + 500]]
            assert client.put_records(StreamName=name, Records=entries)["FailedRecordCount"] == 0

    stream = KINESIS.stream(arn, "trim_horizon", "json")
    check_each_once(kafka, lambda: launch({"kin": moto}), stream, put, total=10_000, kills=1)


@pytest.mark.full(reason="a million records, and a server that is killed again and again, for some minutes")
@pytest.mark.timeout(1800)
def test_a_million_records_of_kinesis_are_taken_once(kafka: str, launch: Launch) -> None:
    # Each of moto's answers takes longer the more records its shards have: a million take more than half an hour.
    with kinesis_server.running(kinesis_server.KinesisServer(shards=4, page=10_000)) as server:

        def put(numbers: Sequence[int]) -> None:
            for n in numbers:
                server.put(random.Random(n).randrange(kinesis_server.SPACE), row(n))

        stream = KINESIS.stream(kinesis_server.ARN, "trim_horizon", "json")
        check_each_once(kafka, lambda: launch({"kin": server.url}), stream, put, total=1_000_000, kills=9)


def messages_of(name: str) -> connectors.DataConnector:
    """Return a subscription. A topic is named after the definitions, and tests share a broker, so each has a name."""
    system = PubSub(name=name, project_id="bees", service_account_key={"type": "service_account"})
    return system.topic("raw", "json")


@pytest.mark.spec("connectors:11:16")
@pytest.mark.full(reason="the test of Kinesis kills a server too; sources/test_pubsub.py has crashes")
def test_a_killed_server_takes_each_message_of_pubsub_once(kafka: str, launch: Launch) -> None:
    with running(PubSubServer(topics={TOPIC}, page=500)) as pubsub:

        def put(numbers: Sequence[int]) -> None:
            for n in numbers:
                pubsub.publish(TOPIC, row(n))

        check_each_once(
            kafka,
            lambda: launch({"protocol": pubsub.address}),
            messages_of("protocol"),
            put,
            total=10_000,
            kills=1,
            after_kill=pubsub.expire,
        )


@pytest.mark.full(reason="a million messages, and a server that is killed again and again, for some minutes")
@pytest.mark.timeout(1800)
def test_a_million_messages_of_pubsub_are_taken_once(kafka: str, launch: Launch) -> None:
    with running(PubSubServer(topics={TOPIC}, page=1_000)) as pubsub:

        def put(numbers: Sequence[int]) -> None:
            for begin in range(0, len(numbers), 1_000):
                with pubsub.at_once():
                    for n in numbers[begin : begin + 1_000]:
                        pubsub.publish(TOPIC, row(n))

        check_each_once(
            kafka,
            lambda: launch({"protocol_of_many": pubsub.address}),
            messages_of("protocol_of_many"),
            put,
            total=1_000_000,
            kills=9,
            after_kill=pubsub.expire,
        )


@pytest.mark.full(reason="a million documents, and a server that is killed again and again, for some minutes")
@pytest.mark.timeout(1800)
def test_a_million_documents_of_mongo_are_taken_once(kafka: str, launch: Launch) -> None:
    with mongo_server.running(MongoServer()) as server:

        def put(numbers: Sequence[int]) -> None:
            for n in numbers:
                found = orjson.loads(row(n))
                at = datetime.fromtimestamp(found["at"], UTC)
                server.collections.setdefault("raw", []).append({**found, "_id": bson.ObjectId(), "at": at})

        mongo = Mongo(name="herd", host="cluster.example.com", db_name="bees", username="", password="")
        collection = mongo.collection("raw", cursor="at")
        # A collection is there with its first document, which is one that the dataset refuses.
        put([99])
        check_each_once(
            kafka, lambda: launch({"herd": server.address}), collection, put, total=1_000_000, kills=9, every="1s"
        )


@pytest.mark.full(reason="Google's emulator delivers again only after a minute, and the server is killed several times")
@pytest.mark.timeout(1800)
def test_many_messages_of_google_s_emulator_are_taken_once(kafka: str, launch: Launch) -> None:
    with running_emulator() as address, grpc.insecure_channel(address) as channel:
        publisher = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        publisher.create_topic(request={"name": TOPIC})

        def put(numbers: Sequence[int]) -> None:
            for begin in range(0, len(numbers), 500):
                messages = [{"data": row(n)} for n in numbers[begin : begin + 500]]
                publisher.publish(request={"topic": TOPIC, "messages": messages})

        # The time of the emulator's answers grows with the number of messages that wait: 200,000 take more than ten
        # minutes.
        check_each_once(
            kafka, lambda: launch({"emulator": address}), messages_of("emulator"), put, total=40_000, kills=4
        )
