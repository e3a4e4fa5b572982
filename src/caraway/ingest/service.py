"""Ingestion: the rows of a log request become durable records, and the sender receives the outcome of each row."""

import asyncio
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass

from caraway.erasure.keys import ErasedKeys
from caraway.errors import InvalidInputError, shortened
from caraway.ingest import metrics
from caraway.ingest.backpressure import Backpressure
from caraway.ingest.delivery import SLICE, Deliverer, Writer
from caraway.ingest.endpoints import Endpoint
from caraway.ingest.marks import Written
from caraway.ingest.requests import Answers, RequestKey, read_back
from caraway.ingest.table import Table, table
from caraway.ingest.targets import RowError, Target
from caraway.topics.dead_letters import DEAD_LETTERS

MAX_LISTED_ERRORS = 20
MAX_LISTED_FIELDS = 20
# The number of rows that a thread casts and encodes at a time. It doesn't hold up the event loop, and each call of it
# costs some 0.1 ms.
THREAD_SLICE = 5 * SLICE
# The most rows that one request may have in progress for a dataset. At this number the request waits for them, so that
# a large request whose rows are all refused doesn't fill the writer's queue with dead letters.
MAX_PENDING_ROWS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """The outcome of a request.

    `accepted` counts the rows that every dataset of the endpoint took, `rejected` those that at least one dataset
    refused; `taken` has the number of rows that each dataset took. `errors` has the first of the reasons for refusals.
    """

    accepted: int
    rejected: int
    errors: tuple[RowError, ...]
    warnings: tuple[str, ...]
    taken: dict[str, int]

    @property
    def status(self) -> int:
        """The HTTP status: 422 if there were rows and no dataset took any of them."""
        return 422 if self.rejected and not any(self.taken.values()) else 200

    def to_json(self) -> dict[str, object]:
        """Return the body of the answer."""
        body: dict[str, object] = {
            "accepted": self.accepted,
            "rejected": self.rejected,
            "errors": [
                {"row": e.row, "field": e.field, "message": e.message, "dataset": e.dataset} for e in self.errors
            ],
            "warnings": list(self.warnings),
        }
        if len(self.taken) > 1:
            body["datasets"] = self.taken
        if self.status != 200:
            first = self.errors[0]
            where = f"row {first.row}" + (f", field {first.field}" if first.field else "")
            body["err_msg"] = (
                f"none of the {self.rejected} rows was accepted; {where} ({first.dataset}): {first.message}"
            )
            body["code"] = InvalidInputError.code
        return body


class IngestService:
    """The part that accepts rows. It lives as long as the server; the endpoint is passed with each request."""

    def __init__(
        self,
        writer: Writer,
        bootstrap_servers: str,
        erased: ErasedKeys | None = None,
        backpressure: Backpressure | None = None,
    ) -> None:
        """Write through `writer`, look for rows of repeated requests on the brokers, write no rows of `erased` keys.

        While `backpressure` names a topic of an endpoint, its requests are refused.
        """
        self._writer = writer
        self._backpressure = backpressure
        self._erased = ErasedKeys(dict) if erased is None else erased
        self._bootstrap_servers = bootstrap_servers
        self._answers: Answers[IngestReport] = Answers()

    async def put(
        self, endpoint: Endpoint, data: object, request: RequestKey | None = None, *, is_large: bool = False
    ) -> IngestReport:
        """Write rows to the datasets of an endpoint, once under an idempotency key, and return what became of them.

        Args:
            endpoint: An endpoint of the current graph.
            data: The rows: a list of objects, an object of lists, or JSON text of either.
            request: The idempotency key, if the request has one.
            is_large: Even a few rows of the request may take long, so a thread processes them.

        Raises:
            TooLargeError: The request has too many rows.
            InvalidInputError: The data has another form.
            ConflictError: The idempotency key was used with other rows.
            BehindError: The indexes or jobs that need the rows are too far behind; no row was written.
            UnavailableError: Kafka doesn't take the rows; some may have been written.
        """
        taking = self._take(endpoint, data, request, is_large=is_large)
        if request is None:
            return await taking
        return await self._answers.once((endpoint.webhook, endpoint.name, request.key), request.digest, taking)

    async def _take(
        self, endpoint: Endpoint, data: object, request: RequestKey | None, *, is_large: bool
    ) -> IngestReport:
        # The answer to a request that was accepted before is found by its key, before this check.
        if self._backpressure is not None:
            self._backpressure.check(target.topic for target in endpoint.targets)
        rows = table(data)
        written: Written = frozenset()
        if request is not None and request.elapsed_ms is not None:
            topics = {target.topic for target in endpoint.targets} | {DEAD_LETTERS}
            written = await asyncio.to_thread(read_back, self._bootstrap_servers, topics, request)
        marks = None if request is None else request.marks(written)
        deliverer = Deliverer(endpoint.targets, rows, origin=endpoint.origin, erased=self._erased, marks=marks)
        intake = _Intake(self._writer, endpoint, rows, deliverer)
        return await intake.run(in_thread=is_large or len(rows) > SLICE or not endpoint.is_quick)


class _Intake:
    """The processing of one request."""

    def __init__(self, writer: Writer, endpoint: Endpoint, rows: Table, deliverer: Deliverer) -> None:
        self._writer = writer
        self._endpoint = endpoint
        self._rows = rows
        self._deliverer = deliverer
        self._pending: list[Future[None]] = []
        self._errors: list[RowError] = []
        self._filtered = Counter[str]()
        self._refused: dict[str, set[int]] = {target.dataset: set() for target in endpoint.targets}

    async def run(self, *, in_thread: bool) -> IngestReport:
        total, step = len(self._rows), THREAD_SLICE if in_thread else SLICE
        awaited = 0
        try:
            for start in range(0, total, step):
                stop = min(start + step, total)
                if in_thread:
                    await asyncio.to_thread(self._slices, start, stop)
                else:
                    self._slices(start, stop)
                if stop - awaited >= MAX_PENDING_ROWS:
                    await self._written_down()
                    awaited = stop
        finally:
            # Also when a slice fails, the writes in progress are awaited, so that none of them goes on after the
            # request has ended.
            await self._written_down()
        return await asyncio.to_thread(self._report, total) if in_thread else self._report(total)

    async def _written_down(self) -> None:
        """Wait for all writes in progress, and raise the first of their errors."""
        pending, self._pending = self._pending, []
        results = await asyncio.gather(*map(asyncio.wrap_future, pending), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _slices(self, start: int, stop: int) -> None:
        for target in self._endpoint.targets:
            self._slice(target, start, stop)

    def _slice(self, target: Target, start: int, stop: int) -> None:
        delivery = self._deliverer.deliver(target, start, stop, time.time_ns() // 1000)
        self._filtered[target.dataset] += delivery.filtered
        for topic, items in delivery.items.items():
            if items:
                self._pending.append(self._writer.write(topic, items))
        if delivery.errors:
            # The errors of the first rows are kept. Rows are in order within a delivery, and slices come in order, so
            # no error after the first MAX_LISTED_ERRORS of a delivery can be among them.
            self._errors = sorted([*self._errors, *delivery.errors[:MAX_LISTED_ERRORS]], key=lambda error: error.row)
            del self._errors[MAX_LISTED_ERRORS:]
            self._refused[target.dataset].update(error.row for error in delivery.errors)

    def _report(self, total: int) -> IngestReport:
        refused = set().union(*self._refused.values())
        taken = {dataset: total - len(rows) for dataset, rows in self._refused.items()}
        for target in self._endpoint.targets:
            count, filtered = taken[target.dataset], self._filtered[target.dataset]
            metrics.count(target, accepted=count - filtered, refused=total - count, filtered=filtered)
        unknown = self._endpoint.unknown_fields(self._rows)
        warnings: tuple[str, ...] = ()
        if unknown:
            datasets = ", ".join(target.dataset for target in self._endpoint.targets)
            more = f" and {len(unknown) - MAX_LISTED_FIELDS:,} more" if len(unknown) > MAX_LISTED_FIELDS else ""
            shown = ", ".join(map(shortened, unknown[:MAX_LISTED_FIELDS]))
            warnings = (f"fields that {datasets} doesn't have were ignored: {shown}{more}",)
        return IngestReport(
            accepted=total - len(refused),
            rejected=len(refused),
            errors=tuple(self._errors),
            warnings=warnings,
            taken=taken,
        )
