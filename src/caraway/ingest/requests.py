"""Repeated requests: a request with an idempotency key is carried out once.

Each record has the key of its request and its row number in a header. A running server remembers its answers; after a
restart it reads from the topics which rows of a request have been written already.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Collection, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from caraway.errors import ConflictError, InvalidInputError, UnavailableError
from caraway.topics.connection import client_config, kafka_logger

HEADER = "caraway-request"
MAX_KEY_LENGTH = 200
# Answers that a server remembers, each a few hundred bytes, so a few megabytes in all.
MAX_ANSWERS = 10_000
# How much earlier than the stated time of the first attempt the topics are read: a client's clock may run at the wrong
# rate, and a request waits in queues before the server reads its clock.
SLACK_MS = 10_000
READ_TIMEOUT_S = 30.0
READ_BATCH = 5_000

# The rows that have been written: (dataset, row number).
Written = frozenset[tuple[str, int]]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RequestKey:
    """An idempotency key. `elapsed_ms` is the time since the first attempt; None in the first attempt itself."""

    key: str
    elapsed_ms: int | None
    digest: bytes

    @classmethod
    def parse(cls, key: str, elapsed: str | None, digest: bytes) -> "RequestKey":
        """Return the key that the two headers of a request contain.

        Raises:
            InvalidInputError: The key is empty or too long, or the time isn't a number of milliseconds.
        """
        if not key or len(key) > MAX_KEY_LENGTH:
            raise InvalidInputError(f"Idempotency-Key has {len(key)} characters; 1 to {MAX_KEY_LENGTH} are expected")
        if elapsed is not None and not (elapsed.isascii() and elapsed.isdigit() and len(elapsed) < 16):
            raise InvalidInputError(
                f"Caraway-Elapsed-Ms is {elapsed[:40]!r}; a whole number of milliseconds is expected"
            )
        return cls(key, None if elapsed is None else int(elapsed), digest)

    def header(self, dataset: str, row: int) -> dict[str, bytes]:
        """Return the header of the record that a row becomes."""
        return {HEADER: f"{row}:{dataset}:{self.key}".encode()}


class Answers(Generic[T]):
    """Answers by key, finished or on their way, at most `limit` of them."""

    def __init__(self, limit: int = MAX_ANSWERS) -> None:
        """Start without answers."""
        self._limit = limit
        self._tasks: OrderedDict[tuple[str, ...], tuple[bytes, asyncio.Task[T]]] = OrderedDict()

    async def once(self, scope: tuple[str, ...], digest: bytes, make: Coroutine[Any, Any, T]) -> T:
        """Return the answer known under `scope`, or that of `make`, which is then remembered unless it fails.

        Raises:
            ConflictError: The key was used with another body.
        """
        known = self._tasks.get(scope)
        if known is not None:
            make.close()
            if known[0] != digest:
                raise ConflictError("this Idempotency-Key was used with another body; a new request needs a new key")
            return await asyncio.shield(known[1])
        # The work runs in its own task, so it continues if the client disconnects, and the answer is there for the next
        # attempt.
        task = asyncio.get_running_loop().create_task(make)
        self._tasks[scope] = (digest, task)
        task.add_done_callback(lambda done: self._settle(scope, done))
        return await asyncio.shield(task)

    def _settle(self, scope: tuple[str, ...], task: "asyncio.Task[T]") -> None:
        if task.cancelled() or task.exception() is not None:
            self._tasks.pop(scope, None)
        while len(self._tasks) > self._limit:
            self._tasks.popitem(last=False)


def read_back(bootstrap_servers: str, topics: Collection[str], request: RequestKey) -> Written:
    """Return the rows of a request that an earlier attempt wrote. Blocks.

    Raises:
        UnavailableError: Kafka doesn't answer.
    """
    if request.elapsed_ms is None:
        return frozenset()
    since_ms = max(0, int(time.time() * 1000) - request.elapsed_ms - SLACK_MS)
    consumer = Consumer(
        client_config(bootstrap_servers) | {"group.id": "caraway-read-back", "enable.auto.commit": False},
        logger=kafka_logger(),
    )
    try:
        return frozenset(_rows(_messages(consumer, topics, since_ms), request.key))
    except KafkaException as error:
        raise UnavailableError(f"Kafka didn't tell which rows of this request are there already: {error}") from error
    finally:
        consumer.close()


def _messages(consumer: Consumer, topics: Collection[str], since_ms: int) -> Iterable[Message]:
    """Yield the records that were written to `topics` from an instant until now."""
    deadline = time.monotonic() + READ_TIMEOUT_S
    wanted = []
    for topic in topics:
        partitions = consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics[topic].partitions
        wanted += [TopicPartition(topic, partition, since_ms) for partition in partitions]
    ends: dict[tuple[str, int], int] = {}
    starts = []
    for start in consumer.offsets_for_times(wanted, timeout=READ_TIMEOUT_S):
        _, end = consumer.get_watermark_offsets(TopicPartition(start.topic, start.partition), timeout=READ_TIMEOUT_S)
        # A negative offset means that nothing was written since the instant.
        if 0 <= start.offset < end:
            ends[start.topic, start.partition] = end
            starts.append(start)
    consumer.assign(starts)
    while ends:
        if time.monotonic() > deadline:
            raise UnavailableError(
                "Kafka took too long to tell which rows of this request are there already; try again"
            )
        for message in consumer.consume(READ_BATCH, timeout=0.2):
            if message.error() is not None:
                raise KafkaException(message.error())
            position = (str(message.topic()), int(message.partition() or 0))
            if int(message.offset() or 0) + 1 >= ends.get(position, 0):
                ends.pop(position, None)
            yield message


def _rows(messages: Iterable[Message], key: str) -> Iterable[tuple[str, int]]:
    for message in messages:
        headers: Iterable[tuple[str, bytes | None]] = message.headers() or ()  # type: ignore[assignment]
        for name, value in headers:
            if name == HEADER and value is not None:
                row, dataset, of = value.decode().split(":", 2)
                if of == key:
                    yield dataset, int(row)
