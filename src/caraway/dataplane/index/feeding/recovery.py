"""Recovery of an index's emissions from the topic, after its database was lost or is built anew.

Without recovery the jobs that read the topic would keep rows that were sent and no longer exist, since nothing would
retract them. Revisions would begin again at the least one, below those on the topic.
"""

import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from caraway.dataplane.index.feeding.consumption import FRESH
from caraway.dataplane.index.feeding.emission import Progress, pack, unpack_sent
from caraway.dataplane.index.records.closing_time import advance_clock_time
from caraway.dataplane.index.storage.intervals import latest, lookback_us
from caraway.dataplane.index.storage.keys import (
    FIRST_TIME_US,
    LAST_TIME_US,
    SENT,
    after,
    emission_key,
    key_prefix,
    timed_key,
)
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.index.windows.change_points import ChangePoints
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.dataplane.topics.erased_keys import is_erasure
from caraway.dataplane.topics.markers import is_marker
from caraway.dataplane.topics.polling import poll_some
from caraway.dataplane.topics.reader import connect
from caraway.errors import UnavailableError
from caraway.graph.plan.model import IndexPlan, TopicPlan

BATCH = 2000
WAIT_S = 0.5
ANSWER_S = 10.0


def recover(plan: IndexPlan, topic: TopicPlan, store: IndexStore, bootstrap_servers: str) -> None:
    """Store what is on the topic of an index's rows, if the index doesn't know of any emission.

    All groups on the topic become dirty. Nothing is emitted before the index has reached the present end of its own
    topic: before that it would retract rows whose inputs it has yet to read.

    The topic's rows also tell up to which time the clock had closed windows. Otherwise the rows of windows that only
    the clock had closed would be retracted, and sent again with the next heartbeat.

    Raises `UnavailableError` if the broker doesn't answer.
    """
    if store.get(emission_key(plan.asset)) is not None:
        return
    consumer = connect(bootstrap_servers, FRESH.config)
    try:
        ends = _ends(consumer, topic.name)
        if not any(ends.values()):
            return
        held = _ends(consumer, plan.topic)
        sent = _Sent(plan, topic, store)
        for messages in _batches(consumer, topic.name, ends):
            sent.add(messages)
        if plan.by_clock and sent.newest_us is not None:
            # The clock time is set to now at most. A row of a later time was closed by the event times of records, not
            # by the clock, and the index gets these records when it reads its own topic again.
            now_us = time.time_ns() // 1000
            advance_clock_time(store, plan.asset, min(now_us, sent.newest_us + lookback_us(plan)))
        batch = store.batch()
        progress = Progress(sent.revision, FIRST_TIME_US, LAST_TIME_US, held)
        batch.put(emission_key(plan.asset), pack(progress))
        store.write(batch)
    except KafkaException as error:
        raise UnavailableError(f"topic {topic.name} can't be read: {error.args[0].str()}") from error
    finally:
        consumer.close()


def forget_emissions(store: IndexStore) -> None:
    """Remove the indexes that emit rows, after another server has emitted for them.

    These indexes no longer know what is on the topics of their rows. They are built anew, and recover their emissions
    from the topics. To be called while their own topics aren't read.
    """
    prefix = emission_key(b"")
    for key, _ in list(store.scan(prefix, after(prefix))):
        store.drop(key[len(prefix) :])


class _Sent:
    """A writer of recovered emissions."""

    def __init__(self, plan: IndexPlan, topic: TopicPlan, store: IndexStore) -> None:
        self._asset = plan.asset
        self._store = store
        self._rows = RecordCodec(topic.schema)
        self._groups = RecordCodec(plan.schema)
        self._change_points = ChangePoints(plan, store)
        names = [column.name for column in topic.schema.columns]
        self._group_at = [names.index(column.name) for column in plan.schema.keys]
        self.revision = 0
        self.newest_us: int | None = None

    def add(self, messages: list[Message]) -> None:
        """Store some records as emitted. Records of one identity come in the order in which they were sent."""
        batch = self._store.batch()
        kept: dict[bytes, tuple[bytes, bytes, int] | None] = {}
        prefixes: dict[bytes, bytes] = {}
        for message in messages:
            key = message.key() or b""
            # Markers and erasures aren't rows. A server may write them to the topic even before the first row is
            # emitted to it.
            if is_marker(key) or is_erasure(key):
                continue
            record = self._rows.decode_value(message.value() or b"")
            if record.row is None:
                continue
            revision = int.from_bytes(record.rev or b"")
            self.revision = max(self.revision, revision)
            group = self._groups.encode_key([record.row[position] for position in self._group_at]) or b""
            prefix = prefixes.setdefault(group, key_prefix(self._asset, group))
            entry = timed_key(prefix + SENT, record.time, b"")
            if entry in kept:
                known = kept[entry]
            else:
                data = self._store.get(entry)
                known = None if data is None else unpack_sent(data)
            if record.op == PUT:
                self.newest_us = latest(self.newest_us, record.time)
                # The topic may have rows of two windows of a group that end at this time, though only one of the
                # windows exists now. The window is part of the key, so the rows' records may be in different partitions
                # and come in any order. The row with the greater revision was sent last, so it is stored.
                if known is None or revision >= known[2]:
                    bare = self._rows.encode_value(op=PUT, time_us=record.time, ingested_us=0, row=record.row)
                    kept[entry] = key, bare, revision
            elif known is not None and known[0] == key:
                kept[entry] = None
        for entry, sent in kept.items():
            if sent is None:
                batch.delete(entry)
            else:
                batch.put(entry, pack(sent))
        self._change_points.mark_dirty({prefix: [(FIRST_TIME_US, LAST_TIME_US)] for prefix in prefixes.values()}, batch)
        self._store.write(batch)


def _ends(consumer: Consumer, topic: str) -> dict[int, int]:
    found = consumer.list_topics(topic, timeout=ANSWER_S).topics[topic]
    if found.error is not None:
        return {}
    return {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_S)[1]
        for partition in found.partitions
    }


def _batches(consumer: Consumer, topic: str, ends: dict[int, int]) -> Iterator[list[Message]]:
    """Yield the messages of a topic up to the given ends."""
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    reached = dict.fromkeys(ends, 0)
    while any(reached[partition] < end for partition, end in ends.items()):
        messages = poll_some(consumer, BATCH, WAIT_S)
        for message in messages:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            reached[message.partition() or 0] = (message.offset() or 0) + 1
        yield messages
