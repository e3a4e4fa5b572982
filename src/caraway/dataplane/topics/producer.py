"""Durable writes to topics, from any thread or from asyncio."""

import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from caraway.dataplane.topics.connection import LOGGER, client_config, kafka_logger
from caraway.errors import InvalidInputError, UnavailableError
from caraway.process.thread_names import show_name

# A message to write: key, value and headers, which are a sequence if a name occurs several times.
TopicItem = tuple[bytes | None, bytes, Mapping[str, bytes] | Sequence[tuple[str, bytes]] | None]

# The most rows, and the most kB, that wait in memory for the broker: some seconds of full load. A write beyond that
# fails at once, so that the sender slows down.
MAX_WAITING_ROWS = 500_000
MAX_WAITING_KBYTES = 256 * 1024
POLL_S = 0.2
METADATA_TIMEOUT_S = 5.0


class TopicWriter:
    """A producer whose writes are durable when they succeed (acks=all, and an idempotent producer).

    Records with a key go to the partition that Java's default partitioner chooses, so a key is on one partition whether
    Spark or Caraway writes it; records without a key are spread. Thread safe. A write succeeds as a whole or fails with
    the reason; rows of a failed write may have been written.
    """

    def __init__(
        self, bootstrap_servers: str, *, timeout_s: float = 30.0, linger_ms: float = 0.0, by_drain: bool = False
    ) -> None:
        """Start to connect in the background; if the broker is away, the first write fails.

        Args:
            bootstrap_servers: The broker, "host:port".
            timeout_s: The time in seconds after which a write without success fails.
            linger_ms: How long to gather rows for one request, in milliseconds. At 0 one row takes 0.7 ms rather than
                1.5, and single rows still gather while requests are on their way.
            by_drain: True if a write is known to be durable when no row of this writer waits any more, instead of by a
                report for each of its rows. A row takes less time then. It is for a writer that one thread uses, which
                awaits its writes now and then: while others go on writing, no write would succeed.
        """
        self._bootstrap_servers = bootstrap_servers
        self._config: dict[str, Any] = client_config(bootstrap_servers) | {
            "acks": "all",
            "enable.idempotence": True,
            # With two requests under way, the broker could refuse the first for a moment, because the partition just
            # got a leader, and then accept the second. A partition that has no rows of this producer yet does that, and
            # librdkafka then reports the first request as delivered ("implicitly acked") although it is lost: seen once
            # in 70 new topics.
            "max.in.flight.requests.per.connection": 1,
            "linger.ms": linger_ms,
            "partitioner": "murmur2_random",
            # For these milliseconds all rows without a key go to one partition, then to another. So batches are full,
            # and rows are still spread soon.
            "sticky.partitioning.linger.ms": 10,
            # Topics are created before anybody writes to them. So an unknown topic is an error, which a write reports
            # after 5 s; by default librdkafka waits for the topic for 30 s.
            "topic.metadata.propagation.max.ms": 5000,
            "message.timeout.ms": int(timeout_s * 1000),
            "queue.buffering.max.messages": MAX_WAITING_ROWS,
            "queue.buffering.max.kbytes": MAX_WAITING_KBYTES,
            "compression.type": "lz4",
            # Without reports of success, no Python code runs for a row that became durable.
            "delivery.report.only.error": by_drain,
        }
        self._by_drain = by_drain
        # The writes that succeed once no row waits any more; only with `by_drain`.
        self._drained: list[_Pending] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._broken = threading.Event()
        self._producer = self._connect()
        self._thread = threading.Thread(target=self._serve, name="topic-writer", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, topic: str, items: Sequence[TopicItem]) -> "Future[None]":
        """Send `items` (key, value, headers) and return at once; the future is done when all of them are durable.

        The future fails with `UnavailableError` when the broker didn't take a row in time, doesn't know the topic, or
        when too much waits already (then nothing was sent), and with `InvalidInputError` for a row that is too large.
        """
        future: Future[None] = Future()
        if not items:
            future.set_result(None)
            return future
        pending = _Pending(future, topic, len(items))
        with self._lock:
            if self._closing.is_set():
                future.set_exception(UnavailableError("the writer is closed"))
                return future
            producer = self._producer
            if len(producer) + len(items) > MAX_WAITING_ROWS:
                future.set_exception(
                    UnavailableError(f"{len(producer)} rows wait for Kafka at {self._bootstrap_servers} already")
                )
                return future
            produce, done = producer.produce, pending.delivered
            for key, value, headers in items:
                try:
                    produce(topic, value, key, on_delivery=done, headers=headers or None)  # type: ignore[arg-type]
                except (BufferError, KafkaException) as error:
                    pending.refused(error)
            if self._by_drain:
                self._drained.append(pending)
        return future

    def write_to_all(
        self, topic: str, key: bytes, value: bytes, partitions: Collection[int] | None = None
    ) -> "Future[None]":
        """Send a record to every partition of a topic and return at once; otherwise like `write`.

        The broker is asked for the partitions, unless the caller knows them.
        """
        future: Future[None] = Future()
        with self._lock:
            if self._closing.is_set():
                future.set_exception(UnavailableError("the writer is closed"))
                return future
            producer = self._producer
            if partitions is None:
                try:
                    found = producer.list_topics(topic, METADATA_TIMEOUT_S).topics[topic]
                except KafkaException as error:
                    future.set_exception(_failure(error.args[0], topic))
                    return future
                if found.error is not None or not found.partitions:
                    future.set_exception(UnavailableError(f"Kafka doesn't know the topic {topic}: {found.error}"))
                    return future
                partitions = found.partitions
            pending = _Pending(future, topic, len(partitions))
            for partition in partitions:
                try:
                    producer.produce(topic, value, key, partition, on_delivery=pending.delivered)
                except (BufferError, KafkaException) as error:
                    pending.refused(error)
            if self._by_drain:
                self._drained.append(pending)
        return future

    def waiting(self) -> int:
        """Return how many rows aren't known to be durable yet."""
        return len(self._producer)

    def close(self, timeout_s: float = 10.0) -> None:
        """Wait at most `timeout_s` for the rows in progress, then stop. Rows that aren't durable by then fail."""
        # A write adds its rows while it holds the lock. So the flush below waits for the rows of each write that didn't
        # find the writer closed.
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
        self._thread.join()
        if self._producer.flush(timeout_s):
            self._producer.purge()
            self._producer.flush(1.0)
        self._settle(UnavailableError("the writer is closed") if len(self._producer) else None)

    def _connect(self) -> Producer:
        return Producer(self._config | {"error_cb": self._on_error}, logger=kafka_logger())

    def _on_error(self, error: KafkaError) -> None:
        """Note an error after which an idempotent producer refuses all work; other errors pass without intervention."""
        if error.fatal():
            LOGGER.warning("the producer for %s starts over: %s", self._bootstrap_servers, error.str())
            self._broken.set()

    def _serve(self) -> None:
        """Process the outcomes of writes, and replace the producer after an error from which it can't recover."""
        show_name()
        while not self._closing.is_set():
            self._producer.poll(POLL_S)
            self._settle()
            if self._broken.is_set():
                with self._lock:
                    broken, self._producer = self._producer, self._connect()
                    self._broken.clear()
                    drained, self._drained = self._drained, []
                broken.purge()
                broken.flush(1.0)
                for pending in drained:
                    pending.settle(UnavailableError("the producer starts over"))

    def _settle(self, error: Exception | None = None) -> None:
        """Settle the writes that are known by a drain, if no row waits any more; with an error, all of them fail."""
        if not self._drained:
            return
        with self._lock:
            # `len` counts a row until its error was noted, so at 0 the errors of all rows are known. A write adds all
            # of its rows while it holds the lock, so the count never has only some of them.
            if error is None and len(self._producer):
                return
            drained, self._drained = self._drained, []
        for pending in drained:
            pending.settle(error)


class _Pending:
    """A write in progress: it settles the future when its rows are counted down, or by `settle`."""

    __slots__ = ("_error", "_future", "_left", "_lock", "_topic")

    def __init__(self, future: "Future[None]", topic: str, rows: int) -> None:
        self._future = future
        self._topic = topic
        self._left = rows
        self._lock = threading.Lock()  # `refused` and `delivered` run in different threads.
        self._error: Exception | None = None

    def delivered(self, error: KafkaError | None, _message: Message) -> None:
        """Note that a row is durable, or the reason why it isn't."""
        if error is not None and self._error is None:
            self._error = _failure(error, self._topic)
        self._down()

    def refused(self, error: Exception) -> None:
        """Note that a row couldn't even be queued."""
        if self._error is None:
            cause = error.args[0] if error.args else error
            self._error = (
                _failure(cause, self._topic)
                if isinstance(cause, KafkaError)
                else UnavailableError(f"too many rows wait for Kafka ({error})")
            )
        self._down()

    def settle(self, error: Exception | None) -> None:
        """Settle the future, whose rows are all known to be durable, except for an error here or one that was noted."""
        self._error = self._error or error
        self._finish()

    def _down(self) -> None:
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._finish()

    def _finish(self) -> None:
        if not self._future.done() and self._future.set_running_or_notify_cancel():
            if self._error is None:
                self._future.set_result(None)
            else:
                self._future.set_exception(self._error)


def _failure(error: KafkaError, topic: str) -> Exception:
    if error.code() in {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}:
        return InvalidInputError(f"a row is too large for the topic {topic}: {error.str()}")
    LOGGER.debug("write to %s failed: %s", topic, error)
    return UnavailableError(f"Kafka didn't take a row for the topic {topic}: {error.str()}")
