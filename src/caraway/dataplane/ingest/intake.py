"""The processing of one log request: its rows become durable records, and the sender receives the outcome of each."""

import asyncio
import time
from dataclasses import dataclass

from caraway.dataplane.ingest.delivery import SLICE, AnyWriter, Deliverer, WriteFuture
from caraway.dataplane.ingest.endpoints import Endpoint
from caraway.dataplane.ingest.remarks import remarks_on_times, unknown_fields
from caraway.dataplane.ingest.row_counts import RowCounts
from caraway.dataplane.ingest.table import Table
from caraway.dataplane.ingest.targets import RowError, Span, Target
from caraway.errors import InvalidInputError, shortened

MAX_LISTED_ERRORS = 20
MAX_LISTED_FIELDS = 20
# The number of rows that a thread, or a process of its own, casts and encodes at a time. It is larger than that of the
# event loop, since no other request waits for it, and each call of a thread costs 0.1 ms.
THREAD_SLICE = 5 * SLICE
# The most rows that one request may have in progress for a dataset. At this number the request waits until they are
# written, so that a large request whose rows are all refused doesn't fill the writer's queue with dead letters.
MAX_PENDING_ROWS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """The outcome of a request.

    `accepted` counts the rows that every dataset of the endpoint took, `rejected` those that at least one dataset
    refused; `taken` has the number of rows that each dataset took, those that its source leaves out included,
    and `counts` what became of all rows, by dataset. `errors` has the first of the reasons for refusals.
    """

    accepted: int
    rejected: int
    errors: tuple[RowError, ...]
    warnings: tuple[str, ...]
    taken: dict[str, int]
    counts: dict[str, RowCounts]

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


class Intake:
    """The processing of one request."""

    def __init__(self, writer: AnyWriter, endpoint: Endpoint, rows: Table, deliverer: Deliverer) -> None:
        """Prepare to write `rows`, of which `deliverer` makes records, to the datasets of an endpoint."""
        self._writer = writer
        self._endpoint = endpoint
        self._rows = rows
        self._deliverer = deliverer
        self._pending: list[WriteFuture] = []
        self._errors: list[RowError] = []
        self._counts = {target.dataset: RowCounts() for target in endpoint.targets}
        self._spans: dict[str, Span] = {}
        self._refused: dict[str, set[int]] = {target.dataset: set() for target in endpoint.targets}

    async def run(self, *, in_thread: bool, step: int = SLICE) -> IngestReport:
        """Write the rows, `step` at a time, and return what became of them.

        Raises:
            UnavailableError: Kafka doesn't take the rows; some may have been written.
        """
        total = len(self._rows)
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
            # Even if a slice fails, the writes in progress are awaited, so that none of them goes on after the request
            # has ended.
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
        self._counts[target.dataset].add(delivery.counts)
        if delivery.span is not None:
            oldest, newest = self._spans.get(target.dataset, delivery.span)
            self._spans[target.dataset] = min(oldest, delivery.span[0]), max(newest, delivery.span[1])
        for topic, items in delivery.items.items():
            if items:
                self._pending.append(self._writer.write(topic, items))
        if delivery.errors:
            # Only the errors of the first rows are kept. A delivery has its errors in the order of rows, so at most its
            # first MAX_LISTED_ERRORS can be among them.
            self._errors = sorted([*self._errors, *delivery.errors[:MAX_LISTED_ERRORS]], key=lambda error: error.row)
            del self._errors[MAX_LISTED_ERRORS:]
            self._refused[target.dataset].update(error.row for error in delivery.errors)

    def _report(self, total: int) -> IngestReport:
        refused = set().union(*self._refused.values())
        taken = {dataset: total - len(rows) for dataset, rows in self._refused.items()}
        unknown = unknown_fields(self._endpoint.targets, self._rows)
        now_us = time.time_ns() // 1000
        warnings = dict.fromkeys(
            remark
            for target in self._endpoint.targets
            for remark in remarks_on_times(target, self._rows, self._spans.get(target.dataset), now_us)
        )
        if unknown:
            datasets = ", ".join(target.dataset for target in self._endpoint.targets)
            more = f" and {len(unknown) - MAX_LISTED_FIELDS:,} more" if len(unknown) > MAX_LISTED_FIELDS else ""
            shown = ", ".join(map(shortened, unknown[:MAX_LISTED_FIELDS]))
            warnings[f"fields that {datasets} doesn't have were ignored: {shown}{more}"] = None
        return IngestReport(
            accepted=total - len(refused),
            rejected=len(refused),
            errors=tuple(self._errors),
            warnings=tuple(warnings),
            taken=taken,
            counts=self._counts,
        )
