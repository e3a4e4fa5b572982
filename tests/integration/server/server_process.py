"""A server process that tests start, and can kill."""

import gzip
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from typing import Any

import httpx2
import msgspec
import orjson
from confluent_kafka import Consumer, TopicPartition

from caraway.apps.server.stalls import LIMIT_S
from caraway.apps.stack import ports
from caraway.dataplane.topics.blocks import records_in
from caraway.dataplane.topics.connection import consumer_config
from caraway.dataplane.topics.markers import is_marker
from caraway.dataplane.topics.polling import poll_some
from caraway.graph.specs import Graph
from caraway.graph.wire.graphs import CommitRequest, encode_commit
from caraway.process.children.forking import Forked
from caraway.process.settings.connectors import ConnectorSettings, SourcesSettings
from caraway.process.settings.index import IndexSettings
from caraway.process.settings.kafka import KafkaSettings
from caraway.process.settings.monitoring import (
    AlertSettings,
    DriftSettings,
    OpenLineageSettings,
    QualitySettings,
    SkewSettings,
)
from caraway.process.settings.offline import OfflineSettings
from caraway.process.settings.oidc import OidcSettings
from caraway.process.settings.server import ServerSettings
from caraway.process.settings.settings import PostgresSettings, SecretsSettings, Settings
from tests.messages import records_of
from tests.services.forking import FORKS
from tests.timeouts import deadline_in, scaled
from tests.tls import TLS

TIMEOUT_S = 120.0
# Length of a slice: enough for some work, and short beside a request of many rows.
SLICE_S = 0.02


# The systems of tests are on this machine, and share the platform's Kafka and Postgres.
OPEN = ConnectorSettings(
    loopback=True,
    own_services=True,
    own_rights=("s3://", "gs://", "az://"),
    roles=("arn:aws:iam::123456789012:role/reader",),
)


class ServerProcess:
    """`python -m caraway.apps.server` on a free port."""

    def __init__(
        self,
        folder: Path,
        *,
        kafka: str | KafkaSettings,
        postgres: str,
        snapshot_seconds: float = 300.0,
        tokens: bool = False,
        admin_token_file: Path | None = None,
        workers: int = 1,
        poll_seconds: float = 1.0,
        key_file: Path | None = None,
        secrets: SecretsSettings | None = None,
        more: Mapping[str, object] | None = None,
        offline: OfflineSettings | None = None,
        index: IndexSettings | None = None,
        skew: SkewSettings | None = None,
        drift: DriftSettings | None = None,
        quality: QualitySettings | None = None,
        alerts: AlertSettings | None = None,
        openlineage: OpenLineageSettings | None = None,
        sources: SourcesSettings | None = None,
        oidc: OidcSettings | None = None,
        port: int | None = None,
        connectors: ConnectorSettings | None = None,
        cold: bool = False,
    ) -> None:
        # A process that is started by its command shares no memory with others, so that its own can be measured.
        self._cold = cold
        self.settings = Settings(
            data_dir=folder,
            secrets=secrets or SecretsSettings(key_file=key_file),
            kafka=KafkaSettings(bootstrap_servers=kafka) if isinstance(kafka, str) else kafka,
            postgres=PostgresSettings(url=postgres),
            offline=offline or OfflineSettings(),
            index=index or IndexSettings(),
            sources=sources or SourcesSettings(),
            oidc=oidc or OidcSettings(),
            connectors=connectors or OPEN,
            # All tests share the topic of served features, so each server would start processes to look at them.
            skew=skew or SkewSettings(enabled=False),
            drift=drift or DriftSettings(enabled=False),
            # A process that checks rows takes a second to start, which few tests need.
            quality=quality or QualitySettings(enabled=False),
            alerts=alerts or AlertSettings(),
            openlineage=openlineage or OpenLineageSettings(),
            server=ServerSettings(
                port=port or ports.choose(),
                snapshot_seconds=snapshot_seconds,
                tokens=tokens,
                admin_token_file=admin_token_file,
                workers=workers,
                poll_seconds=poll_seconds,
                **(more or {}),  # type: ignore[arg-type]  # other settings of the server by name
            ),
        )
        folder.mkdir(parents=True, exist_ok=True)
        self.log_file = folder / "server.log"
        self.http = httpx2.Client(base_url=f"{self.settings.server.url}/api/v1", timeout=TIMEOUT_S, verify=TLS)
        self._process: Forked | subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start the process without waiting for it."""
        environment = {**os.environ, **self.settings.environment()}
        if not self._cold:
            self._process = FORKS.start("caraway.apps.server", environment=environment, log=self.log_file)
            return
        with self.log_file.open("ab") as log:
            command = [sys.executable, "-m", "caraway.apps.server"]
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def start(self, *, healthy: bool = True) -> None:
        self.launch()
        eventually(lambda: self.answers() and (not healthy or self.health().status_code == 200), self.said)

    def answers(self) -> bool:
        try:
            self.http.get("/health")
        except httpx2.TransportError:
            assert self._process is not None
            assert self._process.poll() is None, self.said()
            return False
        return True

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(SIGKILL)
        self._process.wait()

    def run_in_slices_until(
        self, condition: Callable[[], bool], *, slice_s: float = SLICE_S, seconds: float = TIMEOUT_S
    ) -> None:
        """Resume and suspend the process by turns until `condition` holds, and leave it suspended.

        The work of the process can't end while the condition is checked, however slow the test is. It runs for
        `slice_s` at a time. The condition must hold after `seconds` at the latest.
        """
        assert self._process is not None
        deadline = deadline_in(seconds)
        self._process.send_signal(SIGSTOP)
        while not condition():
            assert time.monotonic() < deadline, self.said()
            self._process.send_signal(SIGCONT)
            time.sleep(slice_s)
            self._process.send_signal(SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(SIGCONT)

    def terminate(self) -> None:
        assert self._process is not None
        self._process.send_signal(SIGTERM)

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(scaled(60))

    def stop(self) -> int:
        self.terminate()
        try:
            return self.wait()
        finally:
            self.http.close()

    def stalls(self) -> list[str]:
        """Return the lines of the log about callbacks that computed on the event loop for too long.

        The limit is that of the server's own watch. It is compared with the time of the processor, which no other
        program takes from the loop's thread.
        """
        lines = self.log_file.read_text(errors="replace").splitlines()
        found = [orjson.loads(line) for line in lines if '"the event loop stood still"' in line]
        return [str(line) for line in found if line["processor_seconds"] >= scaled(LIMIT_S)]

    def said(self) -> str:
        return self.log_file.read_text(errors="replace")[-4000:]

    def health(self) -> httpx2.Response:
        return self.http.get("/health")

    def commit(self, graph: Graph) -> list[str]:
        content = encode_commit(CommitRequest(message="test", graph=graph))
        answer = self.http.post("/commit", content=content, headers={"Content-Type": "application/octet-stream"})
        assert answer.status_code == 200, answer.text
        summary: list[str] = answer.json()["summary"]
        return summary

    def log(self, endpoint: str, data: Any, headers: dict[str, str] | None = None) -> httpx2.Response:
        body = {"webhook": "garden", "endpoint": endpoint, "data": data}
        return self.http.post("/log", content=orjson.dumps(body), headers=headers)

    def query(
        self, outputs: list[str], data: Any, inputs: tuple[str, ...] = ("Tap.pot",), **more: Any
    ) -> httpx2.Response:
        body = {"inputs": inputs, "outputs": outputs, "data": data, **more}
        return self.http.post("/query", content=gzip.compress(orjson.dumps(body)), headers={"Content-Encoding": "gzip"})

    def made_topic(self, dataset: str) -> str:
        """Return the name of a dataset's topic, when it is there."""
        eventually(lambda: dataset in str(self.http.get("/status").json().get("topics")), self.said)
        return self.topic(dataset)

    def source(self) -> dict[str, Any]:
        """Return the status of the only source."""
        (status,) = self.http.get("/status").json()["sources"]
        return dict(status)

    def looked_up(self, dataset: str, key: str, keys: Iterable[object], field: str) -> dict[object, Any]:
        """Return the values of a field by the keys that an index has; none before it can be asked."""
        asked = list(keys)
        body = {"keys": [{key: value} for value in asked], "fields": [field]}
        answer = self.http.post(f"/dataset/{dataset}/lookup", json=body)
        if answer.status_code != 200:
            return {}
        found = answer.json()
        rows = zip(asked, found["data"][field], found["found"], strict=True)
        return {each: value for each, value, is_there in rows if is_there}

    def topic(self, dataset: str) -> str:
        topics = self.http.get("/status").json()["topics"]
        name: str = next(topic["name"] for topic in topics if topic["dataset"] == dataset)
        return name


@contextmanager
def running_server(folder: Path, **settings: Any) -> Iterator[ServerProcess]:
    """Start a server with settings of `ServerProcess`, yield it, and kill it afterwards."""
    process = ServerProcess(folder, **settings)
    try:
        process.start()
        yield process
    finally:
        process.kill()
        process.http.close()


def eventually(check: Callable[[], object], explain: Callable[[], str] = str, seconds: float = TIMEOUT_S) -> None:
    """Wait until something holds."""
    deadline = deadline_in(seconds)
    while not check():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.02)


def consumer_of(kafka: str, **settings: object) -> Consumer:
    return Consumer(consumer_config(kafka) | {"group.id": "test", "enable.auto.commit": False, **settings})


class RecordCount:
    """Counts the records of a topic with one partition, reading each once, for a count that is asked for often."""

    def __init__(self, kafka: str, topic: str) -> None:
        # A broker answers the requests of a connection in their order: one for the end of a topic would wait for the
        # fetch before it, which lasts until records come, by default half a second.
        self._consumer, self._topic = consumer_of(kafka, **{"fetch.wait.max.ms": 10}), topic
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._next = self._count = 0

    def __call__(self) -> int:
        """Return the number of records, markers of waits left out."""
        _, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=TIMEOUT_S)
        while self._next < end:
            for message in poll_some(self._consumer, 1000, 1.0):
                assert message.error() is None
                if not is_marker(message.key()):
                    self._count += records_in(message.value())
                self._next = (message.offset() or 0) + 1
        return self._count

    def close(self) -> None:
        self._consumer.close()


def end_of(kafka: str, topic: str) -> int:
    """Return the number of records on a topic with one partition, markers of waits left out."""
    return sum(records_in(value) if key is None else 1 for key, value in _messages(kafka, topic))


def numbers_of(kafka: str, topic: str) -> Counter[int]:
    """Return how often each value of the first column is on a topic with one partition."""
    return Counter(msgspec.msgpack.decode(value)[7][0] for value in records(kafka, topic))


def records(kafka: str, topic: str) -> list[bytes]:
    """Read the values of all records of a topic with one partition, markers of waits left out."""
    return [record for key, value in _messages(kafka, topic) for record in records_of(key, value)]


def _messages(kafka: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Read the keys and values of all messages of a topic with one partition, markers of waits left out."""
    consumer = consumer_of(kafka)
    begin, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
    consumer.assign([TopicPartition(topic, 0, begin)])
    found: list[tuple[bytes | None, bytes | None]] = []
    # An archive that has all records may have cut them off the topic.
    last = begin - 1
    while last + 1 < end:
        for message in poll_some(consumer, 1000, 1.0):
            assert message.error() is None
            if not is_marker(message.key()):
                found.append((message.key(), message.value()))
            last = message.offset() or 0
    consumer.close()
    return found
