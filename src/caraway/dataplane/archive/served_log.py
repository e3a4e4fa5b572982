"""The log of queries with `log=true`: their inputs and features go to a topic, without delaying the answer.

A query puts its columns into a queue and goes on. A thread samples the rows, makes records of them and sends the
records. The rows in the queue are bounded. Rows that can't be sent, because Kafka is away or the queue is full, are
counted as lost.
"""

import random
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import orjson
import structlog

from caraway.compute.query.batch import Batch
from caraway.compute.query.executor import CompiledPlan
from caraway.dataplane.archive import served_metrics as metrics
from caraway.dataplane.topics.producer import TopicItem, TopicWriter
from caraway.process.recurring import Recurring

LOG = structlog.get_logger(__name__)

SERVED = "caraway.offline.monitoring-features"
# The topic keeps rows for a week. The archive copies them to a table within seconds (`archive.seconds`), so no rows are
# lost even if the object store is away for days.
SERVED_TOPIC_CONFIG = {"retention.ms": str(7 * 24 * 3600 * 1000)}
RECORD_FORMAT = 1
# The seconds for which the thread waits after the first query, so that it handles all queries of this time together.
GATHER_S = 0.02
# The most rows of queries that wait for the thread, and the most bytes of records that wait for Kafka: some seconds of
# full load. Rows beyond these bounds are counted as lost, so that queries never wait for Kafka.
MAX_ROWS_WAITING = 200_000
MAX_BYTES_WAITING = 64 << 20
# A record has at most this many bytes, since librdkafka allows a message 1,000,000. If the rows of a query need more,
# they are divided among several records.
MAX_RECORD_BYTES = 900_000
CLOSE_S = 1.0
# The shortest time, in seconds, between two log lines about lost rows, of which an outage of Kafka causes many.
COMPLAIN_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The branch, commit and workflow of a query, and the share of its rows that is kept, `rate`."""

    branch: str
    commit: str
    workflow: str
    rate: float


@dataclass(frozen=True, slots=True)
class Served:
    """A query that was answered: its plan and all of its columns."""

    plan: CompiledPlan
    batch: Batch
    origin: Origin
    served_us: int


class ServedLog(Recurring):
    """Keeps the rows of answered queries. It sends what waits when it is stopped; the caller closes the writer then."""

    def __init__(self, writer: TopicWriter, *, chance: Callable[[], float] | None = None) -> None:
        """Send through `writer`, on which no other caller should wait; `chance` draws numbers from 0 to 1."""
        # The interval never ends in practice: the thread sleeps until `keep` wakes it for the first query that waits.
        super().__init__("served-features", self._send_gathered, threading.TIMEOUT_MAX, finish=self._send)
        self._writer = writer
        self._chance = chance or random.SystemRandom().random
        self._lock = threading.Lock()
        self._queue: list[Served] = []
        self._rows_waiting = 0
        self._bytes_waiting = 0
        self._complained_at = float("-inf")

    def keep(self, plan: CompiledPlan, batch: Batch, origin: Origin) -> None:
        """Keep a query that was answered; this returns at once."""
        served = Served(plan, batch, origin, time.time_ns() // 1000)
        with self._lock:
            # If nothing waits, a query of any size is accepted; otherwise a query with more than MAX_ROWS_WAITING rows
            # would always be lost.
            full = self._rows_waiting and self._rows_waiting + batch.rows > MAX_ROWS_WAITING
            first = not full and not self._queue
            if not full:
                self._rows_waiting += batch.rows
                self._queue.append(served)
        if full:
            self._lose(origin.workflow, batch.rows, f"{MAX_ROWS_WAITING:,} rows wait already")
        elif first:
            self.wake()

    def _send_gathered(self) -> None:
        self.stopping.wait(GATHER_S)
        self._send()

    def _send(self) -> None:
        """Send all that waits."""
        with self._lock:
            taken, self._queue = self._queue, []
        try:
            self._write(taken)
        except Exception:
            LOG.exception("features that were served can't be kept")
            for served in taken:
                self._lose(served.origin.workflow, served.batch.rows, "they make no record")
        with self._lock:
            self._rows_waiting -= sum(served.batch.rows for served in taken)

    def _write(self, taken: Sequence[Served]) -> None:
        shipment = _Shipment()
        for served in taken:
            rate = served.origin.rate
            chosen = [row for row in range(served.batch.rows) if rate >= 1 or self._chance() < rate]
            for rows, data in records(served, chosen):
                if len(data) > MAX_RECORD_BYTES:
                    self._lose(served.origin.workflow, rows, "a row is too large for Kafka")
                elif shipment.size + len(data) + self._bytes_waiting > MAX_BYTES_WAITING:
                    self._lose(served.origin.workflow, rows, f"{MAX_BYTES_WAITING:,} bytes wait for Kafka already")
                else:
                    shipment.add(data, served.origin.workflow, rows)
        if shipment.items:
            with self._lock:
                self._bytes_waiting += shipment.size
            future = self._writer.write(SERVED, shipment.items)
            future.add_done_callback(lambda done: self._arrived(shipment, done))

    def _arrived(self, shipment: "_Shipment", done: "Future[None]") -> None:
        with self._lock:
            self._bytes_waiting -= shipment.size
        error = done.exception()
        for workflow, rows in shipment.rows.items():
            if error is None:
                metrics.SERVED_ROWS.labels(metrics.EXTRACTIONS.workflow(workflow), "kept").inc(rows)
            else:
                self._lose(workflow, rows, str(error))

    def _lose(self, workflow: str, rows: int, reason: str) -> None:
        metrics.SERVED_ROWS.labels(metrics.EXTRACTIONS.workflow(workflow), "lost").inc(rows)
        now = time.monotonic()
        if now - self._complained_at > COMPLAIN_S:
            self._complained_at = now
            LOG.warning("features that were served are not kept", rows=rows, workflow=workflow, reason=reason)


@dataclass(slots=True)
class _Shipment:
    """Records that are sent together, and how many rows of each workflow they hold."""

    items: list[TopicItem] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    size: int = 0

    def add(self, data: bytes, workflow: str, rows: int) -> None:
        self.items.append((None, data, None))
        self.rows[workflow] = self.rows.get(workflow, 0) + rows
        self.size += len(data)


def records(served: Served, chosen: Sequence[int]) -> list[tuple[int, bytes]]:
    """Return records of the `chosen` rows of a query: the number of rows of each, and its bytes.

    A query is one record as long as that fits Kafka; otherwise its rows are halved until they do.
    """
    if not chosen:
        return []
    batch, origin = served.batch, served.origin
    head = {
        "format": RECORD_FORMAT,
        "query": secrets.token_hex(8),
        "served_us": served.served_us,
        "branch": origin.branch,
        "commit": origin.commit,
        "workflow": origin.workflow,
    }
    return list(_fitting(head, batch, served.plan.given(batch), served.plan.answer(batch), chosen))


def _fitting(
    head: Mapping[str, object],
    batch: Batch,
    inputs: Mapping[str, Sequence[object]],
    outputs: Mapping[str, Sequence[object]],
    chosen: Sequence[int],
) -> list[tuple[int, bytes]]:
    every = len(chosen) == batch.rows
    record: dict[str, Any] = {
        **head,
        "rows": chosen,
        "at_us": batch.at if isinstance(batch.at, int) else [batch.at[row] for row in chosen],
        "inputs": inputs if every else _chosen(inputs, chosen),
        "outputs": outputs if every else _chosen(outputs, chosen),
    }
    data = orjson.dumps(record, default=str)
    if len(data) <= MAX_RECORD_BYTES or len(chosen) == 1:
        return [(len(chosen), data)]
    half = len(chosen) // 2
    return [part for rows in (chosen[:half], chosen[half:]) for part in _fitting(head, batch, inputs, outputs, rows)]


def _chosen(columns: Mapping[str, Sequence[object]], rows: Sequence[int]) -> dict[str, list[object]]:
    return {name: [column[row] for row in rows] for name, column in columns.items()}
