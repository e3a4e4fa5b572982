"""A server whose index is behind its topics says so, takes no more rows, and goes on when it has caught up."""

# mypy: disable-error-code="attr-defined"

import secrets
from collections.abc import Iterator
from datetime import datetime

import httpx2
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from caraway import dataset, field, meta
from caraway.connectors import Webhook, source
from caraway.dataplane.topics.polling import poll_some
from caraway.graph.specs import Graph
from tests.integration.server.server_process import TIMEOUT_S, ServerProcess, consumer_of, eventually

# Bounds that a backlog of a second passes.
BOUNDS = {"max_lag_records": 1_000, "max_lag_seconds": 0.1}
# So many copies of one record take the index about two seconds, and its lag is looked at once a second.
BACKLOG = 600_000


@pytest.fixture(scope="module")
def server(kafka: str, module_postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Yield a server with small bounds."""
    process = ServerProcess(tmp_path_factory.mktemp("server"), kafka=kafka, postgres=module_postgres, more=BOUNDS)
    process.start()
    yield process
    process.stop()


def graph_of_hooks(name: str) -> Graph:
    """Return a graph of two datasets, whose endpoints are called `name` and `name`-others.

    The topics of datasets with a new name are new, so the flood doesn't delay the servers of other tests.
    """
    hook = Webhook(name="garden")

    @meta(owner="a@b.co")
    @source(hook.endpoint(name), disorder="1h", cdc="upsert")
    @dataset(index=True)
    class Crates:
        crate: int = field(key=True)
        at: datetime = field(timestamp=True)

    @meta(owner="a@b.co")
    @source(hook.endpoint(f"{name}-others"), disorder="1h", cdc="upsert")
    @dataset(index=True)
    class Others:
        crate: int = field(key=True)
        at: datetime = field(timestamp=True)

    return Graph(datasets=(Crates.to_spec(), Others.to_spec()))


def crate(number: int) -> dict[str, object]:
    return {"crate": number, "at": "2024-01-01T00:00:00Z"}


def read(kafka: str, topic: str) -> list[tuple[bytes, bytes]]:
    """Return the distinct keys and values on a topic with one partition, in order."""
    consumer: Consumer = consumer_of(kafka)
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: dict[tuple[bytes, bytes], None] = {}
    last = -1
    while last + 1 < end:
        for message in poll_some(consumer, 10_000, 1.0):
            assert message.error() is None
            found[message.key() or b"", message.value() or b""] = None
            last = message.offset() or 0
    consumer.close()
    return list(found)


def flood(server: ServerProcess, kafka: str, dataset: str) -> None:
    """Write copies of the first record of a dataset's topic while the server is suspended, and resume it.

    The index has to read them, and they change nothing.
    """

    def has_caught_up() -> bool:
        indexes = server.http.get("/status").json()["index"]["indexes"]
        return any(each["dataset"] == dataset and each["lag"] == 0 for each in indexes)

    # A backlog that an index has when it is looked at for the first time is the topic's history, and refuses nothing.
    eventually(has_caught_up, server.said)
    topic = server.topic(dataset)
    key, value = read(kafka, topic)[0]
    server.run_in_slices_until(lambda: True)
    producer = Producer({"bootstrap.servers": kafka, "queue.buffering.max.messages": BACKLOG})
    for _ in range(BACKLOG):
        producer.produce(topic, value, key)
    assert producer.flush(TIMEOUT_S) == 0
    server.resume()


def test_rows_are_refused_while_their_index_is_behind(server: ServerProcess, kafka: str) -> None:
    name = f"crates-{secrets.token_hex(4)}"
    server.commit(graph_of_hooks(name))
    assert server.log(name, [crate(1)]).status_code == 200
    topic = server.topic("Crates")
    before = read(kafka, topic)
    flood(server, kafka, "Crates")
    answers: list[httpx2.Response] = []

    def is_refused() -> bool:
        answers.append(server.log(name, [crate(2), {"crate": "no number"}]))
        return answers[-1].status_code == 429

    # The index is looked at once a second. Before that rows are accepted, as they were before.
    eventually(is_refused, server.said)
    answer = answers[-1]
    assert answer.headers["retry-after"] == "5"
    body = answer.json()
    assert body["code"] == "behind"
    assert "the index of Crates is" in body["err_msg"]
    assert "send it again after" in body["err_msg"].lower()

    def shows_lag() -> bool:
        indexes = server.http.get("/status").json()["index"]["indexes"]
        index = next(each for each in indexes if each["dataset"] == "Crates")
        # The lag isn't known for a moment while the index is left to the thread for backlogs.
        return (index["lag"] or 0) > 0 and index["lag_seconds"] > 0

    eventually(shows_lag, server.said)
    page = server.http.get("/metrics").text
    assert 'caraway_index_lag_records{dataset_name="Crates"' in page
    assert 'caraway_index_lag_seconds{dataset_name="Crates"' in page
    # Endpoints that feed other datasets take rows.
    assert server.log(f"{name}-others", [crate(1)]).status_code == 200
    eventually(lambda: server.log(name, [crate(3)]).status_code == 200, server.said)
    # Only the rows of accepted requests are there.
    accepted = sum(answer.status_code == 200 for answer in answers)
    assert len(read(kafka, topic)) == len(before) + accepted + 1
    indexes = {each["dataset"]: each for each in server.http.get("/status").json()["index"]["indexes"]}
    assert indexes["Others"]["lag_seconds"] == 0.0
