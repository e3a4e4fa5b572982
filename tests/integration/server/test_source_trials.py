"""Trials of sources against real Kafka: a commit that can't be read is refused, and a sample shows which rows fit."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from caraway import Client, Dataset, connectors, dataset, field, meta
from caraway.apps.cli import app
from caraway.connectors import Kafka, Webhook, source
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.errors import RemoteError
from tests.integration.server.server_process import ServerProcess, end_of, eventually

ROWS = [
    {"pot": 1, "moisture": 0.5, "at": 1_700_000_000},
    {"pot": 2, "moisture": 0.1, "at": 1_700_000_001},
    {"pot": "fern", "moisture": 0.5, "at": 1_700_000_002},
    None,
]
# The dataset of `tried`, in a module.
DEFINITIONS = """
from datetime import datetime

from caraway import connectors, dataset, field, meta
from caraway.connectors import Kafka, source

brokers = Kafka(
    name="brokers", bootstrap_servers="{brokers}", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN"
)


@meta(owner="a@b.co")
@source(
    brokers.topic("{topic}"), disorder="1h", cdc="append", where=connectors.eval(lambda rows: rows["moisture"] > 0.2)
)
@dataset
class Tried:
    pot: int
    moisture: float
    at: datetime = field(timestamp=True)
"""
# The terminal is so wide that no line of the output is broken.
WIDE = {"COLUMNS": "300"}


@pytest.fixture
def topic(kafka: str) -> str:
    """Return the name of a new topic, in which two rows of four fit."""
    name = f"trial-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    producer = Producer({"bootstrap.servers": kafka})
    for row in ROWS:
        producer.produce(name, b"no json" if row is None else orjson.dumps(row), "key")
    assert producer.flush(30) == 0
    return name


def brokers(address: str) -> Kafka:
    return Kafka(name="brokers", bootstrap_servers=address, security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")


def tried(connector: connectors.DataConnector) -> Dataset:
    @meta(owner="a@b.co")
    @source(connector, disorder="1h", cdc="append", where=connectors.eval(lambda rows: rows["moisture"] > 0.2))
    @dataset
    class Tried:
        pot: int
        moisture: float
        at: datetime = field(timestamp=True)

    return Tried


@pytest.fixture
def client_of() -> Iterator[Callable[[ServerProcess], Client]]:
    """Yield a function that connects to a server; the connections are closed after the test."""
    with ExitStack() as stack:
        yield lambda server: stack.enter_context(Client(server.settings.server.url))


def test_a_source_is_tried_before_and_after_its_commit(
    own_server: Callable[[], ServerProcess], client_of: Callable[[ServerProcess], Client], kafka: str, topic: str
) -> None:
    server = own_server()
    client = client_of(server)
    wanted = tried(brokers(kafka).topic(topic))
    letters = end_of(kafka, DEAD_LETTERS)

    def outcome(found: list[dict[str, Any]]) -> dict[object, list[str]]:
        (trial,) = found
        assert (trial["dataset"], trial["error"]) == ("Tried", "")
        assert {tuple(row["origin"]) for row in trial["rows"]} == {("partition", "offset")}
        return {
            str(row["payload"]): [*(change["op"] for change in row["changes"]), *(r["field"] for r in row["reasons"])]
            for row in trial["rows"]
        }

    expected = {
        str(row or "no json"): outcome for row, outcome in zip(ROWS, (["insert"], [], ["pot"], [""]), strict=True)
    }
    assert outcome(client.try_sources("Tried", [wanted])) == expected
    # A trial changes nothing: neither is there a dataset, nor a dead letter, nor a consumer group.
    assert server.http.get("/status").json()["datasets"] == []
    assert end_of(kafka, DEAD_LETTERS) == letters
    client.commit("try", [wanted])
    assert outcome(client.try_sources("brokers")) == expected
    shown = CliRunner().invoke(app, ["source", "test", "Tried", "--url", str(server.settings.server.url)], env=WIDE)
    assert shown.exit_code == 1
    assert "4 rows of a sample: 1 accepted, 2 refused, 1 left out" in shown.output
    assert "offset 2: pot" in shown.output
    with pytest.raises(RemoteError, match="there are: Tried, brokers"):
        client.try_sources("Nothing")


def test_a_commit_whose_source_can_not_be_read_is_refused_with_the_place(
    own_server: Callable[[], ServerProcess], client_of: Callable[[ServerProcess], Client], kafka: str, topic: str
) -> None:
    server = own_server()
    client = client_of(server)
    for preview in (True, False):
        with pytest.raises(RemoteError, match=f"dataset Tried, source .*brokers.*{topic}-missing"):
            client.commit("try", [tried(brokers(kafka).topic(f"{topic}-missing"))], preview=preview)
    assert server.http.get("/status").json()["commit"] is None
    with pytest.raises(RemoteError, match="webhook"):
        client.try_sources("Tried", [tried(Webhook(name="web").endpoint("rows"))])
    # A system that is away later doesn't prevent a commit of something else.
    wanted = tried(brokers(kafka).topic(topic))
    client.commit("try", [wanted])
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.delete_topics([topic])[topic].result()
    client.commit("try again", [wanted])
    (trial,) = client.try_sources("Tried")
    assert topic in trial["error"]


def test_other_settings_of_a_system_are_tried_and_shown_by_all_commands(
    own_server: Callable[[], ServerProcess],
    client_of: Callable[[ServerProcess], Client],
    kafka: str,
    topic: str,
    tmp_path: Path,
) -> None:
    server = own_server()
    client = client_of(server)
    url = ["--url", str(server.settings.server.url)]

    def run(*args: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, [*args, *url], env=WIDE)
        return done.exit_code, done.stdout

    first = client.commit("first", [tried(brokers(kafka).topic(topic))])
    # Nobody listens at the port 1.
    for preview in (True, False):
        with pytest.raises(RemoteError, match=r"dataset Tried, source .*brokers"):
            client.commit("away", [tried(brokers("127.0.0.1:1").topic(topic))], preview=preview)
    assert server.http.get("/status").json()["commit"] == first.commit_id
    module = tmp_path / "moved.py"
    moved = f"127.0.0.1:1,{kafka}"
    module.write_text(DEFINITIONS.format(brokers=moved, topic=topic))
    change = f"Kafka brokers (bootstrap_servers {kafka} → {moved})"
    code, shown = run("preview", str(module))
    assert (code, f"systems changed: {change}" in shown) == (0, True)
    assert "nothing to change" not in shown
    code, shown = run("commit", str(module), "-m", "moved", "--json")
    assert code == 0
    answer = orjson.loads(shown)
    assert answer["changes"]["systems"]["changed"] == ["Kafka brokers"]
    assert f"systems changed: {change}\n" in answer["summary"]
    assert f"systems changed: {change}" in run("history")[1]
    assert run("diff", first.commit_id, answer["commit_id"]) == (1, f"~ system {change}\n")
    # Rows that were read before aren't read again, and the source goes on at the other address.
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(topic, orjson.dumps({"pot": 7, "moisture": 0.7, "at": 1_700_000_009}), "key")
    assert producer.flush(30) == 0
    eventually(lambda: end_of(kafka, server.topic("Tried")) == 2, server.said)
    (status,) = server.http.get("/status").json()["sources"]
    assert status["error"] == ""


def test_a_dead_letter_is_repaired_and_replayed_once(
    own_server: Callable[[], ServerProcess], client_of: Callable[[ServerProcess], Client], kafka: str, topic: str
) -> None:
    server = own_server()
    client = client_of(server)
    client.commit("read", [tried(brokers(kafka).topic(topic))])
    asked = {"dataset": "Tried", "source": "brokers", "since": "2024-01-01T00:00:00Z"}

    def letters() -> dict[str, str]:
        found = server.http.get("/dead_letters", params=asked).json()["dead_letters"]
        return {"pot" if letter["reason"].startswith("pot") else "text": letter["id"] for letter in found}

    def waiting() -> list[dict[str, str]]:
        problems = server.http.get("/problems").json()["problems"]
        return [problem for problem in problems if "dead letter" in problem["what"]]

    eventually(lambda: set(letters()) == {"pot", "text"}, server.said)
    assert server.http.get("/dead_letters", params={**asked, "source": "other"}).json()["dead_letters"] == []
    assert (
        server.http.get("/dead_letters", params={**asked, "since": "2999-01-01T00:00:00Z"}).json()["dead_letters"] == []
    )
    wrong, _ = waiting()
    assert wrong["what"].startswith("Tried: 1 waiting dead letter: ")
    assert wrong["link"] == "/console/dead-letters?dataset=Tried"
    before = end_of(kafka, server.topic("Tried"))

    def replay(letter: str, *options: str) -> tuple[int, str]:
        args = ["dead-letters", "replay", letter, *options, "--url", str(server.settings.server.url)]
        done = CliRunner().invoke(app, args, env=WIDE)
        return done.exit_code, done.output + (done.stderr if done.exit_code else "")

    code, output = replay(letters()["pot"])
    assert code == 1
    assert "pot" in output
    code, output = replay(letters()["text"], "--set", "pot=3")
    assert code == 1
    assert "send the whole row" in " ".join(output.split())
    assert replay(letters()["pot"], "--set", "pot=3")[0] == 0
    assert "was replayed before" in replay(letters()["pot"], "--set", "pot=4")[1]
    row = {"pot": 5, "moisture": 0.9, "at": 1_700_000_009}
    assert server.http.post(f"/dead_letters/{letters()['text']}/replay", json={"row": row}).status_code == 200
    assert end_of(kafka, server.topic("Tried")) == before + 2
    assert waiting() == []
