"""Tests of two servers that share an index of four shards; one is killed and comes back, under readers of both.

The servers read each other's shards by TLS.

Every answer of either server must be the one that a dictionary of the records gives, or a refusal that asks to try
again.
"""

# ruff: noqa: ANN001, ANN201 (definitions as users write them)
# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment"

import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from caraway import Count, F, connectors, dataset, extractor, featureset, field, meta, pipeline
from caraway.apps.server.__main__ import run_workers
from caraway.apps.stack import ports
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.dataplane.topics.producer import TopicWriter
from caraway.dtypes import Continuous, Tumbling
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from caraway.lib.params import inputs, outputs
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.index import IndexSettings
from caraway.process.settings.kafka import KafkaSettings
from caraway.process.settings.server import ServerSettings
from caraway.process.settings.settings import Settings
from tests.integration.server.engine_process import EngineProcess
from tests.integration.server.server_process import TIMEOUT_S, ServerProcess, eventually
from tests.services.certificates import write_certificates
from tests.tls import TLS

SHARDS = 4
HOUR_S = 3600
GUESTS = [f"guest-{number}" for number in range(40)]

hook = connectors.Webhook(name="divided")


@meta(owner="a@b.co")
@connectors.source(hook.endpoint("guests"), disorder="1h", cdc="upsert")
@dataset(index=True)
class Guests:
    guest: str = field(key=True, erase_key=True)
    name: str
    at: datetime = field(timestamp=True)


@meta(owner="a@b.co")
@connectors.source(hook.endpoint("stays"), disorder="1h", cdc="append")
@dataset
class Stays:
    guest: str
    at: datetime = field(timestamp=True)


@meta(owner="a@b.co")
@dataset(index=True)
class Totals:
    guest: str = field(key=True)
    total: int
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(Stays)
    def count(cls, stays):
        return stays.groupby("guest").aggregate(total=Count(window=Continuous("forever")))


@meta(owner="a@b.co")
@dataset(index=True)
class Hours:
    guest: str = field(key=True)
    stays: int
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(Stays)
    def count(cls, stays):
        return stays.groupby("guest").aggregate(stays=Count(window=Tumbling("1h")))


@meta(owner="a@b.co")
@featureset
class Asked:
    guest: str


@meta(owner="a@b.co")
@featureset
class Told:
    guest: str = F(Asked.guest)
    name: str = F(Guests.name, default="nobody")
    total: int = F(Totals.total, default=0)
    hour: int = F(Hours.stays, default=0)
    greeting: str

    @extractor(deps=[Guests])
    @inputs("guest")
    @outputs("greeting")
    def greet(cls, ts, guest):
        rows, _ = Guests.lookup(ts, guest=guest, fields=["name"])
        return ("hello " + rows["name"].fillna("nobody")).rename("greeting")


GRAPH = Graph(
    datasets=tuple(d.to_spec() for d in (Guests, Stays, Totals, Hours)),
    featuresets=tuple(f.to_spec() for f in (Asked, Told)),
)
FEATURES = ["Told.name", "Told.total", "Told.hour"]


@pytest.fixture
def servers(kafka: str, postgres: str, tmp_path: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Yield two servers with folders of their own, one object store and one key file."""
    identity = tmp_path / "servers.pem"
    write_certificates(tmp_path / "servers-ca.pem", identity)
    tls: dict[str, Any] = {"ca_file": tmp_path / "servers-ca.pem", "certificate_file": identity, "key_file": identity}

    def make(name: str) -> ServerProcess:
        server = ServerProcess(
            tmp_path / name, kafka=kafka, postgres=postgres, snapshot_seconds=1.0, key_file=tmp_path / "secret.key"
        )
        server.settings = server.settings.model_copy(
            update={
                "kafka": KafkaSettings(bootstrap_servers=kafka, partitions=SHARDS),
                "index": IndexSettings(shards=SHARDS, lease_seconds=4.0, port=ports.choose(), **tls),
                "objects": str(tmp_path / "objects"),
            }
        )
        return server

    both = make("one"), make("two")
    for server in both:
        server.start()
    yield both
    for server in both:
        server.kill()
        server.http.close()


@pytest.fixture
def engine(servers: tuple[ServerProcess, ServerProcess], tmp_path: Path) -> Iterator[EngineProcess]:
    """Yield an engine that runs the jobs of both servers."""
    process = EngineProcess(servers[0], tmp_path / "engine")
    process.start()
    yield process
    process.end()


class Model:
    """The records that were written, and from them the expected row of each guest."""

    def __init__(self, server: ServerProcess, kafka: str) -> None:
        self.names: dict[str, str] = {}
        self.rounds = 0
        self.stays: list[tuple[str, int]] = []
        self.writer = TopicWriter(kafka)
        (schema,) = [topic.schema for topic in plan_graph(GRAPH).topics if topic.dataset == "Stays"]
        self.codec = RecordCodec(schema)
        self.topic = server.topic("Stays")
        self.base_s = (int(time.time()) // HOUR_S - 10) * HOUR_S

    def log(self, server: ServerProcess, first: int, end: int, word: str) -> None:
        """Log names of guests through a server."""
        names = {guest: f"{word} {guest}" for guest in GUESTS[first:end]}
        # The rows of a later call have later times.
        self.rounds += 1
        rows = [{"guest": guest, "name": name, "at": self.base_s + self.rounds} for guest, name in names.items()]
        answer = server.http.post("/log", json={"webhook": "divided", "endpoint": "guests", "data": rows})
        assert answer.json().get("accepted") == len(rows), answer.text
        self.names |= names

    def stay(self, stays: list[tuple[str, int]]) -> None:
        """Write stays, each of a guest and so many seconds after the beginning. Each shard takes those of its keys."""
        items = [
            (
                None,
                self.codec.encode_value(op=PUT, time_us=(self.base_s + second) * 1_000_000, ingested_us=1, row=[guest]),
                None,
            )
            for guest, second in stays
        ]
        self.writer.write(self.topic, items).result(TIMEOUT_S)
        self.stays += stays

    def wanted(self) -> dict[str, list[object]]:
        totals = Counter(guest for guest, _ in self.stays)
        closed = max((second for _, second in self.stays), default=0) // HOUR_S * HOUR_S
        hours = Counter(guest for guest, second in self.stays if closed - HOUR_S <= second < closed)
        return {
            "Told.name": [self.names.get(guest, "nobody") for guest in GUESTS],
            "Told.total": [totals[guest] for guest in GUESTS],
            "Told.hour": [hours[guest] for guest in GUESTS],
        }


def ask(server: ServerProcess) -> httpx2.Response:
    return server.query(FEATURES, {"Asked.guest": GUESTS}, inputs=("Asked.guest",))


def is_refusal(answer: httpx2.Response) -> bool:
    """Return whether an answer asks to try again."""
    if answer.status_code != 503:
        return False
    assert answer.json()["code"] in {"index_moving", "unavailable"}, answer.text
    assert answer.headers["retry-after"]
    return True


def here(server: ServerProcess) -> list[int]:
    shards: list[int] = server.http.get("/status").json()["index"]["shards"]["here"]
    return shards


class Watcher:
    """A client that asks again and again; answers must be right, refusals, or missing while the server is dead."""

    def __init__(self, server: ServerProcess, wanted: dict[str, list[object]]) -> None:
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._server = server
        self._wanted = wanted
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with httpx2.Client(base_url=self._server.http.base_url, timeout=TIMEOUT_S, verify=TLS) as client:
            while not self._ended.is_set():
                body = {"inputs": ["Asked.guest"], "outputs": FEATURES, "data": {"Asked.guest": GUESTS}}
                try:
                    answer = client.post("/query", json=body)
                except httpx2.TransportError:
                    self.counts["none"] += 1
                    self._ended.wait(0.05)
                    continue
                if is_refusal(answer):
                    self.counts["refused"] += 1
                elif answer.status_code == 200 and answer.json() == self._wanted:
                    self.counts["right"] += 1
                else:
                    self.wrong.append(answer.text[:500])

    def end(self) -> Counter[str]:
        self._ended.set()
        self._thread.join()
        assert not self.wrong, self.wrong[0]
        return self.counts


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:aggregate")
@pytest.mark.usefixtures("engine")
def test_every_answer_is_right_or_asks_to_try_again(servers: tuple[ServerProcess, ServerProcess], kafka: str) -> None:
    one, two = servers
    one.commit(GRAPH)
    model = Model(one, kafka)

    def all_right() -> bool:
        answers = [ask(server) for server in servers]
        return all(answer.status_code == 200 and answer.json() == model.wanted() for answer in answers)

    def said() -> str:
        return "\n".join([*(ask(server).text[:300] for server in servers), *(s.said()[-1500:] for s in servers)])

    # Each server has its part, and both answer for all of it.
    eventually(lambda: (len(here(one)), len(here(two))) == (2, 2), said)
    for server in servers:
        found = server.settings.index
        assert found.certificate_file is not None
        assert ssl.get_server_certificate(("127.0.0.1", found.port or 0)) in found.certificate_file.read_text()
    assert sorted([*here(one), *here(two)]) == list(range(SHARDS))
    model.log(one, 0, 20, "first")
    model.log(two, 20, 40, "first")
    # The last stay closes the hour before for all guests, whatever their shard.
    model.stay([(guest, number * 60) for number, guest in enumerate(GUESTS)])
    model.stay([(guest, HOUR_S + number) for number, guest in enumerate(GUESTS[::2])])
    model.stay([(GUESTS[0], 2 * HOUR_S)])
    eventually(all_right, said)
    for server in servers:
        rows = server.http.post("/dataset/Guests/lookup", json={"keys": [{"guest": guest} for guest in GUESTS]})
        assert rows.json()["data"]["name"] == model.wanted()["Told.name"]
        told = server.query(["Told.greeting"], {"Asked.guest": GUESTS}, inputs=("Asked.guest",)).json()
        assert told == {"Told.greeting": [f"hello {model.names[guest]}" for guest in GUESTS]}
        assert server.health().status_code == 200

    # One server is killed: the other one takes over, from its snapshots and the topics.
    watchers = [Watcher(server, model.wanted()) for server in servers]
    two.kill()
    eventually(lambda: here(one) == list(range(SHARDS)), said)
    eventually(lambda: ask(one).status_code == 200, one.said)
    counts = [watcher.end() for watcher in watchers]
    assert counts[0]["right"], counts

    # Rows that are written meanwhile are served.
    model.log(one, 10, 30, "second")
    model.stay([(guest, 2 * HOUR_S + 60 + number) for number, guest in enumerate(GUESTS[::3])])
    model.stay([(GUESTS[7], 3 * HOUR_S + 1)])
    eventually(lambda: ask(one).json() == model.wanted(), one.said)

    # The server comes back: it answers at once by asking the other one, and gets its part again.
    watchers = [Watcher(server, model.wanted()) for server in servers]
    two.start()
    eventually(lambda: (len(here(one)), len(here(two))) == (2, 2), said)
    eventually(all_right, said)
    counts = [watcher.end() for watcher in watchers]
    assert all(count["right"] for count in counts), counts
    assert "the index begins with snapshot" in one.log_file.read_text() + two.log_file.read_text()

    # A key that is erased through one server is gone at both, and removed by the owner of its shard.
    erased = one.http.post("/dataset/Guests/erase", json={"erase_keys": [{"guest": GUESTS[5]}]})
    assert erased.json()["new"] == 1, erased.text
    del model.names[GUESTS[5]]
    eventually(all_right, said)

    def is_removed() -> bool:
        (erasure,) = one.http.get("/dataset/Guests/erasures").json()["erasures"]
        return any(place["place"].startswith("index of") for place in erasure["places"])

    eventually(is_removed, said)

    # A server that is stopped in good order releases its shards at once, so nobody waits for a lease.
    assert two.stop() == 0, two.said()
    eventually(lambda: here(one) == list(range(SHARDS)) and ask(one).json() == model.wanted(), one.said)
    assert one.stop() == 0, one.said()


def test_several_processes_and_a_divided_index_are_refused() -> None:
    settings = Settings(server=ServerSettings(workers=2), index=IndexSettings(shards=SHARDS))
    with pytest.raises(ConfigurationError, match=r"index\.shards"):
        run_workers(settings)
