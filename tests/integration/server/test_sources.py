"""Tests of Kafka topics as sources: nothing is lost or doubled, and rows are those that the mock client makes."""

# mypy: disable-error-code="attr-defined"

import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson
import pandas as pd
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from caraway import Dataset, connectors, dataset, field, meta
from caraway.connectors import Kafka, Webhook, eval, ref, source  # noqa: A004 (the name in the API)
from caraway.expr import col
from caraway.graph.specs import Graph
from caraway.testing import MockClient
from tests.integration.server.server_process import ServerProcess, eventually


@pytest.fixture
def topic(kafka: str) -> str:
    """Return the name of a new topic with three partitions."""
    name = f"source-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(name, 3, 1)])[name].result()
    return name


def produce(kafka: str, topic: str, rows: Iterable[tuple[str, Any]]) -> None:
    producer = Producer({"bootstrap.servers": kafka, "queue.buffering.max.messages": 1_000_000})
    for key, row in rows:
        producer.produce(topic, row if isinstance(row, bytes | None) else orjson.dumps(row), key)
    assert producer.flush(60) == 0


def brokers(kafka: str) -> Kafka:
    return Kafka(name="brokers", bootstrap_servers=kafka, security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")


def graph_of(*defined: Dataset) -> Graph:
    return Graph(datasets=tuple(each.to_spec() for each in defined))


def readings_of(connector: connectors.DataConnector) -> Dataset:
    @meta(owner="a@b.co")
    @source(connector, disorder="1h", cdc="append")
    @dataset
    class Measured:
        pot: int
        moisture: float
        at: datetime = field(timestamp=True)

    return Measured


def changed(connector: connectors.DataConnector, name: str) -> Dataset:
    """Return a dataset of changes; its rows are made by an expression, a function and a copy."""

    class Body:
        pot: int = field(key=True)
        species: str
        size: float
        at: datetime = field(timestamp=True)

    Body.__name__ = Body.__qualname__ = name
    return meta(owner="a@b.co")(
        source(
            connector,
            disorder="1h",
            cdc="debezium",
            preproc={
                "species": eval(lambda rows: rows["name"].str.upper()),
                "size": eval(col("cm") / 100.0, schema={"cm": float}),
                "at": ref("seen"),
            },
            where=eval(lambda rows: rows["species"] != "WEED"),
        )(dataset(index=True)(Body))
    )


def envelope(op: str, before: Any, after: Any, at: int) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "ts_ms": at * 1000, "source": {}}


def pot(number: int, name: str, cm: float, seen: int) -> dict[str, Any]:
    return {"pot": number, "name": name, "cm": cm, "seen": seen}


CHANGES = [
    envelope("c", None, pot(1, "fern", 10, 1_700_000_000), 1_700_000_000),
    envelope("c", None, pot(2, "weed", 20, 1_700_000_001), 1_700_000_001),
    envelope("c", None, pot(3, "moss", 30, 1_700_000_002), 1_700_000_002),
    envelope("u", pot(1, "fern", 10, 1_700_000_000), pot(1, "fern", 15, 1_700_000_010), 1_700_000_010),
    envelope("u", pot(3, "moss", 30, 1_700_000_002), pot(4, "moss", 30, 1_700_000_011), 1_700_000_011),
    envelope("u", pot(1, "fern", 15, 1_700_000_010), pot(1, "weed", 15, 1_700_000_020), 1_700_000_020),
    envelope("c", None, pot(5, "rose", 50, 1_700_000_021), 1_700_000_021),
    envelope("d", {"pot": 5}, None, 1_700_000_030),
    envelope("c", None, pot(6, "palm", 60, 1_700_000_031), 1_700_000_031),
]
KEYS = [{"pot": number} for number in range(1, 7)]
TIMES = [1_700_000_000 + second for second in (0, 5, 12, 25, 40)]


def test_rows_are_those_of_the_mock_client(own_server: Callable[[], ServerProcess], kafka: str, topic: str) -> None:
    hook = Webhook(name="changes")
    posted, consumed = changed(hook.endpoint("pots"), "Posted"), changed(brokers(kafka).topic(topic), "Consumed")
    server = own_server()
    server.commit(graph_of(posted, consumed))
    # The changes are in one partition, since those of a key that changes have two keys.
    produce(kafka, topic, [*(("one", change) for change in CHANGES), ("one", None), ("one", b"no envelope")])
    eventually(lambda: server.http.get("/health").status_code == 200, server.said)
    body = {"webhook": "changes", "endpoint": "pots", "data": CHANGES}

    def is_posted() -> bool:
        answer = server.http.post("/log", content=orjson.dumps(body))
        assert answer.status_code in {200, 404}, answer.text
        return answer.status_code == 200 and answer.json()["accepted"] == len(CHANGES)

    eventually(is_posted, server.said)
    mock = MockClient()
    mock.commit("changes", [posted])
    mock.log("changes", "pots", pd.DataFrame(CHANGES))
    stamps = [pd.Timestamp(at, unit="s", tz="UTC") for at in TIMES for _ in KEYS]
    keys = KEYS * len(TIMES)
    frame, found = mock.lookup("Posted", keys, ["species", "size"], timestamps=pd.Series(stamps))
    wanted = [
        [species, size] if is_found else None
        for species, size, is_found in zip(frame["species"], frame["size"], found, strict=True)
    ]
    assert Counter(row is None for row in wanted)[False] > 8

    def looked_up(name: str) -> list[list[object] | None]:
        asked = {"keys": keys, "fields": ["species", "size"], "timestamps": [at.isoformat() for at in stamps]}
        answer = server.http.post(f"/dataset/{name}/lookup", json=asked)
        assert answer.status_code == 200, answer.text
        data, is_found = answer.json()["data"], answer.json()["found"]
        rows = zip(data["species"], data["size"], is_found, strict=True)
        return [[species, size] if there else None for species, size, there in rows]

    for name in ("Posted", "Consumed"):
        eventually(lambda name=name: looked_up(name) == wanted, lambda name=name: f"{looked_up(name)}\n{wanted}")  # type: ignore[misc]

    def dead_letters() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = server.http.get("/dead_letters", params={"dataset": "Consumed"}).json()[
            "dead_letters"
        ]
        return found

    # The rows and the dead letter are on two topics, so the rows may be served before the dead letter is there.
    eventually(dead_letters, server.said)
    letters = dead_letters()
    assert [letter["replayable"] for letter in letters] == [False]
    assert f"topic={topic}" in letters[0]["from"]
    assert "isn't JSON" in letters[0]["reason"]


def test_a_source_that_is_away_says_so_and_ends_with_its_dataset(
    own_server: Callable[[], ServerProcess], kafka: str, topic: str
) -> None:
    server = own_server()
    read = readings_of(brokers(kafka).topic(topic)).to_spec()
    server.commit(Graph(datasets=(read,)))
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.delete_topics([topic])[topic].result()

    def error() -> str:
        return "".join(status["error"] for status in server.http.get("/status").json()["sources"])

    eventually(lambda: "topic" in error() and topic in error(), lambda: f"{error()}\n{server.said()}")
    assert server.health().status_code == 200
    server.commit(Graph(datasets=(replace(read, metadata=replace(read.metadata, deleted=True)),)))
    eventually(lambda: server.http.get("/status").json()["sources"] == [], server.said)
