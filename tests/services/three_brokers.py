"""A cluster of three Kafka brokers, each a process with a folder of its own, of which tests may take one."""

import itertools
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM

from confluent_kafka import Consumer, TopicPartition
from typing_extensions import override

from caraway.apps.stack import ports
from caraway.apps.stack.jars import JarSet
from caraway.apps.stack.kafka import EmbeddedKafka, new_cluster_id
from caraway.dataplane.topics.producer import TopicWriter
from caraway.errors import UnavailableError
from caraway.process.children import process
from tests.timeouts import deadline_in, scaled

# The numbers of a batch that is written, and the batches that are under way at a time.
BATCH, UNDER_WAY = 20, 8


class _Broker(EmbeddedKafka):
    """One of three brokers, which is also one of three controllers."""

    node = 1
    cluster_id = ""
    voters = ""

    @override
    def _security(self) -> dict[str, str]:
        return super()._security() | {
            "node.id": str(self.node),
            "controller.quorum.voters": self.voters,
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
        }

    @override
    def _cluster_id(self) -> str:
        return self.cluster_id


class ThreeBrokers:
    """A running cluster."""

    def __init__(self, folder: Path, jars: JarSet) -> None:
        """Prepare brokers in folders below `folder`; nothing runs before `start`."""
        chosen: list[int] = []
        for _ in range(6):
            chosen.append(ports.choose(avoid=chosen))
        cluster_id = new_cluster_id()
        self._folder = folder
        self._brokers: dict[int, _Broker] = {}
        for node in (1, 2, 3):
            broker = self._brokers[node] = _Broker(
                self.folder(node),
                port=chosen[node - 1],
                controller_port=chosen[node + 2],
                jars=jars.broker,
                heap_mb=192,
                with_password=False,
            )
            broker.node, broker.cluster_id = node, cluster_id
            broker.voters = ",".join(f"{n}@127.0.0.1:{chosen[n + 2]}" for n in (1, 2, 3))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.bootstrap_servers for broker in self._brokers.values())

    def folder(self, node: int) -> Path:
        """Return the folder of a broker by its number."""
        return self._folder / f"broker-{node}"

    def start(self, *nodes: int) -> None:
        """Start brokers by their numbers, and wait until they answer."""
        for node in nodes:
            broker = self._brokers[node]
            broker.prepare()
            self._processes[node] = process.start(broker.launch(), self._folder / f"broker-{node}.log", SIGTERM)
        for node in nodes:
            broker, child = self._brokers[node], self._processes[node]
            deadline = deadline_in(120)
            while (reason := broker.check(child.pid)) is not None:
                assert child.poll() is None, f"broker {node} has ended"
                assert time.monotonic() < deadline, reason
                time.sleep(0.1)

    def kill(self, node: int) -> None:
        """End a broker as kill -9 does; it may be started again."""
        child = self._processes.pop(node)
        child.send_signal(SIGKILL)
        child.wait()

    def take_away(self, node: int) -> None:
        """End a broker as kill -9 does, and remove its disk."""
        self.kill(node)
        shutil.rmtree(self.folder(node), ignore_errors=True)

    def stop(self) -> None:
        """End all brokers."""
        for child in self._processes.values():
            process.stop(child, SIGTERM, 20)


@contextmanager
def three_brokers(folder: Path, jars: JarSet) -> Iterator[ThreeBrokers]:
    """Start three brokers, yield them, and stop them afterwards."""
    cluster = ThreeBrokers(folder, jars)
    try:
        cluster.start(1, 2, 3)
        yield cluster
    finally:
        cluster.stop()


@dataclass
class Written:
    """The numbers whose writes were acknowledged, and how many batches failed."""

    acknowledged: set[int]
    failed: int = 0


def write_numbers(servers: str, topic: str, *, before: int, least: int, harm: Callable[[], None]) -> Written:
    """Write numbers until `least` are acknowledged; call `harm` once, with writes under way, after `before` of them."""
    written, numbers, harmed = Written(set()), itertools.count(), False
    with TopicWriter(servers, timeout_s=scaled(60)) as writer:
        while len(written.acknowledged) < least:
            batches = [[next(numbers) for _ in range(BATCH)] for _ in range(UNDER_WAY)]
            writes = [writer.write(topic, [(b"%d" % n, b"%d" % n, None) for n in batch]) for batch in batches]
            if len(written.acknowledged) >= before and not harmed:
                harm()
                harmed = True
            for batch, write in zip(batches, writes, strict=True):
                try:
                    write.result(scaled(120))
                except UnavailableError:
                    written.failed += 1
                else:
                    written.acknowledged.update(batch)
    assert harmed
    return written


def read_numbers(servers: str, topic: str, partitions: list[int]) -> set[int]:
    """Return the events, which are numbers, on partitions of a topic."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "enable.auto.commit": False})
    found: set[int] = set()
    try:
        for partition in partitions:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=scaled(30))
            consumer.assign([TopicPartition(topic, partition, 0)])
            reached = 0
            while reached < end:
                message = consumer.poll(scaled(30))
                assert message is not None
                if message.error() is None:
                    reached = (message.offset() or 0) + 1
                    found.add(int(message.value() or b""))
    finally:
        consumer.close()
    return found
