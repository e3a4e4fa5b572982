"""Tailing topics into the index: one thread that reads, applies and goes on, whatever becomes of the broker."""

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from caraway.index.store import IndexStore, is_damage
from caraway.index.writer import IndexWriter
from caraway.plan.model import IndexPlan
from caraway.topics.connection import client_config, kafka_logger

LOGGER = logging.getLogger(__name__)

# A poll returns with the first record; what else has arrived is taken along, up to so many. A batch of 5,000
# contributions takes some 0.1 s, after which reads see it.
BATCH_RECORDS = 5_000
POLL_S = 0.1
# The broker answers a fetch at once when there is a record, and after this time else.
FETCH_WAIT_MS = 50
# After an error nothing is tried for so long.
PAUSE_S = 1.0
METADATA_TIMEOUT_S = 5.0
# At the start of a topic of which nothing has been read.
BEGINNING = 0


@dataclass(slots=True)
class _Progress:
    """What the worker has done for an index."""

    plan: IndexPlan
    offsets: dict[int, int] = field(default_factory=dict)
    applied: int = 0
    unchanged: int = 0
    refused: int = 0
    newest_ingested_us: int = 0


class IndexWorker:
    """Keeps indexes up to date with their topics, in a thread of its own."""

    def __init__(self, bootstrap_servers: str, store: IndexStore) -> None:
        """Read from Kafka at `bootstrap_servers` ("host:port,host:port") into `store`. Nothing runs before `start`."""
        self._bootstrap_servers = bootstrap_servers
        self._store = store
        self._writer = IndexWriter(store)
        self._wanted: tuple[IndexPlan, ...] = ()
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._progress: dict[str, _Progress] = {}
        self._consumer: Consumer | None = None
        self._thread = threading.Thread(target=self._run, name="index-worker", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the batch at hand and stop reading; returns when the thread has ended."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def is_alive(self) -> bool:
        """Tell whether the thread runs."""
        return self._thread.is_alive()

    def set_plans(self, plans: Iterable[IndexPlan]) -> None:
        """Keep these indexes up to date from now on, and no others. A new one is read from its topic's beginning."""
        self._wanted = tuple(plans)
        self._changed.set()

    def status(self) -> list[dict[str, Any]]:
        """Return for each index how far it has read: records, and how many its topic holds beyond that."""
        return [self._status(progress) for progress in list(self._progress.values())]

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._tail()
            except KafkaException as error:
                LOGGER.warning("reading topics failed (%s); trying again in %g s", error, PAUSE_S)
            except Exception as error:
                LOGGER.exception("indexing failed; going on from the stored offsets in %g s", PAUSE_S)
                if is_damage(error):
                    self._store.mark_damaged(str(error))
            self._stopping.wait(PAUSE_S)

    def _tail(self) -> None:
        """Read until told to stop, or until something fails."""
        consumer = Consumer(
            {
                **client_config(self._bootstrap_servers),
                # Partitions are assigned by us and offsets are ours, but librdkafka insists on a group's name.
                "group.id": "caraway-index",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": FETCH_WAIT_MS,
                "fetch.queue.backoff.ms": 10,
                "queued.max.messages.kbytes": 16 * 1024,
            },
            logger=kafka_logger(),
        )
        self._consumer = consumer
        try:
            self._changed.set()
            while not self._stopping.is_set():
                if self._changed.is_set():
                    self._changed.clear()
                    if not self._assign(consumer):
                        self._changed.set()
                        self._stopping.wait(PAUSE_S)
                        continue
                first = consumer.poll(POLL_S)
                if first is not None:
                    self._apply([first, *consumer.consume(BATCH_RECORDS - 1, timeout=0)])
        finally:
            self._consumer = None
            consumer.close()

    def _assign(self, consumer: Consumer) -> bool:
        """Read the topics that are wanted, from where the database has them. False if a topic isn't there yet."""
        wanted = self._wanted
        if not wanted:
            consumer.unassign()
            self._progress = {}
            return True
        known = consumer.list_topics(timeout=METADATA_TIMEOUT_S).topics
        positions = []
        progress = {}
        for plan in wanted:
            if plan.topic not in known or not known[plan.topic].partitions:
                LOGGER.warning("topic %s of dataset %s isn't there yet", plan.topic, plan.dataset)
                return False
            stored = self._store.offsets(plan.asset)
            before = self._progress.get(plan.topic)
            progress[plan.topic] = before if before is not None and before.plan == plan else _Progress(plan=plan)
            for partition in known[plan.topic].partitions:
                offset = stored.get(partition, BEGINNING)
                progress[plan.topic].offsets[partition] = offset
                positions.append(TopicPartition(plan.topic, partition, offset))
        self._progress = progress
        consumer.assign(positions)
        return True

    def _apply(self, messages: Sequence[Message]) -> None:
        by_topic: dict[str, list[tuple[bytes | None, bytes | None, int, int]]] = {}
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 (librdkafka's own name)
                    raise KafkaException(error)
                continue
            # The client types these as optional for messages that are errors.
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            by_topic.setdefault(topic, []).append((message.key(), message.value(), partition, offset))  # type: ignore[arg-type]
        for topic, records in by_topic.items():
            progress = self._progress.get(topic)
            if progress is None:
                continue
            applied = self._writer.apply(progress.plan, records)
            progress.applied += applied.written
            progress.unchanged += applied.unchanged
            progress.refused += applied.refused
            progress.newest_ingested_us = max(progress.newest_ingested_us, applied.newest_ingested_us)
            for _, _, partition, offset in records:
                progress.offsets[partition] = offset + 1

    def _status(self, progress: _Progress) -> dict[str, Any]:
        plan = progress.plan
        return {
            "dataset": plan.dataset,
            "topic": plan.topic,
            "kind": plan.kind,
            "offsets": {str(partition): offset for partition, offset in progress.offsets.items()},
            "lag": self._lag(progress),
            "applied": progress.applied,
            "unchanged": progress.unchanged,
            "refused": progress.refused,
            "newest_ingested_us": progress.newest_ingested_us or None,
        }

    def _lag(self, progress: _Progress) -> int | None:
        """Count the records that the topic holds and the index doesn't; None if the broker doesn't answer."""
        consumer = self._consumer
        if consumer is None:
            return None
        total = 0
        for partition, offset in list(progress.offsets.items()):
            try:
                position = TopicPartition(progress.plan.topic, partition)
                _, end = consumer.get_watermark_offsets(position, METADATA_TIMEOUT_S)
            except (KafkaException, RuntimeError):
                return None
            total += max(0, end - offset)
        return total
