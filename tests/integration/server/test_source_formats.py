"""Tests of Kafka topics in Avro and Protobuf on a server: outages of the registry, poisoned records, tables."""

# mypy: disable-error-code="attr-defined"

import random
import secrets
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal as Number
from typing import Any, Optional

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from caraway import Dataset, connectors, dataset, field, meta
from caraway.connectors import Avro, Kafka, Protobuf, eval, source  # noqa: A004 (the name in the API)
from caraway.dtypes import Decimal
from caraway.expr import col
from caraway.graph.specs import Graph
from tests.integration.server.server_process import ServerProcess, eventually
from tests.registry_server import RegistryServer, registry_server
from tests.unit.compute.rows import debezium_tables as tables
from tests.unit.dataplane.sources.decoding.records import protobuf_text_writer

KEYS = range(10)


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


@pytest.fixture
def make_topic(kafka: str) -> Callable[[], str]:
    """Return a function that makes a topic with three partitions, and returns its name."""

    def make() -> str:
        name = f"formats-{secrets.token_hex(4)}"
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.create_topics([NewTopic(name, tables.PARTITIONS, 1)])[name].result()
        return name

    return make


def accounts_of(connector: connectors.DataConnector) -> Dataset:
    @meta(owner="a@b.co")
    @source(connector, disorder="1h", cdc="debezium", where=eval(col("level") > 0, schema={"level": int}))
    @dataset(index=True)
    class Accounts:
        id: int = field(key=True)
        name: Optional[str]
        level: int
        balance: Decimal[2]
        updated_at: datetime = field(timestamp=True)

    return Accounts


def places_of(connector: connectors.DataConnector) -> Dataset:
    @meta(owner="a@b.co")
    @source(connector, disorder="1h", cdc="upsert")
    @dataset(index=True)
    class Places:
        n: int = field(key=True)
        s: str
        cost: Optional[Decimal[2]]
        at: datetime = field(timestamp=True)

    return Places


def history() -> tables.Table:
    """Return a table after some hundred changes, whose log has no old rows but their keys."""
    chance, table = random.Random(19), tables.Table(full=False)
    for _ in range(300):
        match chance.randrange(6):
            case 0:
                table.move(chance.choice(KEYS), chance.choice(KEYS))
            case 1:
                table.remove(chance.choice(KEYS))
            case _:
                balance = Number(chance.randrange(-999, 999)) / 100
                table.put(chance.choice(KEYS), chance.choice([None, "a", "b"]), chance.randrange(3), balance)
    return table


def produce(kafka: str, topic: str, written: list[tuple[int, bytes | None]]) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    for partition, value in written:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0


def looked_up(server: ServerProcess, name: str, keys: list[dict[str, int]], fields: list[str]) -> list[Any]:
    answer = server.http.post(f"/dataset/{name}/lookup", json={"keys": keys, "fields": fields})
    if answer.status_code != 200:
        return [answer.text]
    data, found = answer.json()["data"], answer.json()["found"]
    return [row if there else None for *row, there in zip(*(data[name] for name in fields), found, strict=True)]


def statuses(server: ServerProcess) -> dict[str, dict[str, Any]]:
    return {status["dataset"]: status for status in server.http.get("/status").json()["sources"]}


@pytest.mark.spec("connectors:11:7", "connectors:11:8")
def test_a_table_captured_in_avro_through_an_outage_of_the_registry(
    own_server: Callable[[], ServerProcess], kafka: str, registry: RegistryServer, make_topic: Callable[[], str]
) -> None:
    topic, other = make_topic(), make_topic()
    registry.basic("ada", "test-password")
    login = {"username": "ada", "password": "test-password"}
    brokers = Kafka(name="brokers", bootstrap_servers=kafka, security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
    avro, protobuf = (kind(registry="confluent", url=registry.url, **login) for kind in (Avro, Protobuf))
    server = own_server()
    defined = accounts_of(brokers.topic(topic, avro)), places_of(brokers.topic(other, protobuf))
    server.commit(Graph(datasets=tuple(each.to_spec() for each in defined)))

    table = history()
    with SchemaRegistryClient({"url": registry.url, "basic.auth.user.info": "ada:test-password"}) as client:
        serializer = AvroSerializer(client, orjson.dumps(tables.AVRO).decode())
        context = SerializationContext(topic, MessageField.VALUE)
        log: list[tuple[int, bytes | None]] = [
            (
                record.partition,
                None if record.envelope is None else serializer(tables.in_avro(record.envelope), context),
            )
            for record in table.log
        ]
    # A record of an unknown schema, one that ends too soon, and one that isn't in the format at all.
    good = next(value for _, value in log if value is not None)
    poison: list[tuple[int, bytes | None]] = [(0, b"\0\0\0\3\xe7" + good[5:]), (1, good[:-3]), (2, b'{"op": "c"}')]
    registry.broken = 503
    produce(kafka, topic, [*log[:100], *poison, *log[100:]])
    eventually(lambda: "HTTP 503" in statuses(server)["Accounts"]["error"], server.said)
    assert looked_up(server, "Accounts", [{"id": key} for key in KEYS], ["level"]) == [None] * len(KEYS)
    registry.broken = 0
    rows = [table.rows.get(key) for key in KEYS]
    wanted = [[row["name"], row["level"]] if row is not None and row["level"] > 0 else None for row in rows]
    assert 0 < wanted.count(None) < len(KEYS)
    keys = [{"id": key} for key in KEYS]
    eventually(lambda: looked_up(server, "Accounts", keys, ["name", "level"]) == wanted, server.said)

    def letters() -> list[str]:
        found = server.http.get("/dead_letters", params={"dataset": "Accounts"}).json()["dead_letters"]
        return sorted(letter["reason"] for letter in found)

    eventually(lambda: len(letters()) == len(poison), lambda: f"{letters()}")
    for reason, part in zip(letters(), ("begins with the byte 0x7b", "doesn't fit", "schema 999"), strict=True):
        assert part in reason
    _check_protobuf(server, kafka, other, registry)


def _check_protobuf(server: ServerProcess, kafka: str, topic: str, registry: RegistryServer) -> None:
    """Check that rows in Protobuf arrive, and that a dead letter shows the bytes of one that doesn't fit."""
    write = protobuf_text_writer(registry)
    row: dict[str, Any] = {"n": 1, "x": None, "s": "bee", "o": None, "b": True, "raw": b"\xff", "day": tables.BEGIN}
    row |= {"cost": Number("1.25"), "ns": [], "m": {}, "place": None, "color": "RED", "at": tables.BEGIN}
    produce(kafka, topic, [(0, write(row)), (0, write({**row, "n": 2, "cost": Number("1.255")}))])
    eventually(lambda: looked_up(server, "Places", [{"n": 1}], ["s", "cost"]) == [["bee", "1.25"]], server.said)

    def letters() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = server.http.get("/dead_letters", params={"dataset": "Places"}).json()[
            "dead_letters"
        ]
        return found

    eventually(letters, server.said)
    (letter,) = letters()
    assert "cost" in letter["reason"]
    # The row was kept although it has bytes and a decimal, which JSON doesn't have.
    assert letter["replayable"]
