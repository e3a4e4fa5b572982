"""Ingestion: the part of the server that accepts the rows of log requests."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from caraway.compute.rows.batches import LeftOut
from caraway.dataplane.ingest import metrics
from caraway.dataplane.ingest.backpressure import Backpressure
from caraway.dataplane.ingest.delivery import SLICE, AnyWriter, Deliverer, Writer
from caraway.dataplane.ingest.endpoints import Endpoint
from caraway.dataplane.ingest.gathering import GatheringWriter
from caraway.dataplane.ingest.intake import THREAD_SLICE, IngestReport, Intake
from caraway.dataplane.ingest.intake_process import IntakeProcess
from caraway.dataplane.ingest.marks import Marks, Written
from caraway.dataplane.ingest.requests import Answers, ReadingBack, RequestKey, read_back
from caraway.dataplane.ingest.row_counts import RowCounts
from caraway.dataplane.ingest.table import table
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dataplane.topics.erased_keys import ErasedKeys


class IngestService:
    """The part that accepts rows. It lives as long as the server; the endpoint is passed with each request."""

    def __init__(
        self,
        writer: Writer,
        bootstrap_servers: str,
        erased: ErasedKeys | None = None,
        backpressure: Backpressure | None = None,
        *,
        process: IntakeProcess | None = None,
        is_closed: Callable[[Target], bool] = lambda _: False,
        traced: Callable[[AnyWriter], AnyWriter] | None = None,
    ) -> None:
        """Write through `writer`, look for rows of repeated requests on the brokers, write no rows of `erased` keys.

        While `backpressure` names a topic of an endpoint, its requests are refused. Large requests are left to
        `process`. `is_closed` is called with each target whose source is bounded, and returns whether it has ended, so
        that rows are left out; it blocks. `traced` wraps
        a writer so that records of traced requests are marked.
        """
        gathering = GatheringWriter(writer)
        self._process = process
        self._writer: AnyWriter = writer if traced is None else traced(writer)
        # The writer for requests that are processed in the event loop.
        self._gathering: AnyWriter = gathering if traced is None else traced(gathering)
        self._backpressure = backpressure
        self._is_closed = is_closed
        self._erased = ErasedKeys(dict) if erased is None else erased
        self._reading_back = ReadingBack(partial(read_back, bootstrap_servers))
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
            BusyError: Too many repeated requests of the account wait until their rows are looked for.
            BehindError: The indexes or jobs that need the rows are too far behind; no row was written.
            UnavailableError: Kafka doesn't take the rows; some may have been written.
        """

        async def take(marks: Marks | None) -> IngestReport:
            rows = table(data)
            closed = await asyncio.to_thread(self._closed, endpoint) if endpoint.is_bounded else ()
            taking = endpoint
            if closed:
                taking = replace(endpoint, targets=tuple(t for t in endpoint.targets if t not in closed))
            deliverer = Deliverer(taking.targets, rows, origin=endpoint.origin, erased=self._erased, marks=marks)
            if is_large or len(rows) > SLICE or not endpoint.is_quick:
                report = await Intake(self._writer, taking, rows, deliverer).run(in_thread=True, step=THREAD_SLICE)
            else:
                report = await Intake(self._gathering, taking, rows, deliverer).run(in_thread=False)
            return _without(report, closed, len(rows)) if closed else report

        return await self._once(endpoint, request, take)

    def leaves(self, endpoint: Endpoint) -> bool:
        """Return whether `put_text` takes a request for an endpoint: the other process must be able to do all of it.

        Raises:
            UnavailableError: Some erased keys can't be compared.
        """
        if self._process is None or not endpoint.is_plain or not self._process.is_ready():
            return False
        if endpoint.is_bounded:
            # The source may end while the request waits for the other process, which would accept the rows
            # nevertheless.
            return False
        return all(self._erased.hides_record(target.topic, target.schema) is None for target in endpoint.targets)

    async def put_text(self, endpoint: Endpoint, text: bytes, request: RequestKey | None = None) -> IngestReport:
        """Leave a request to the other process, given the JSON text of its rows; see `put` and `leaves`."""
        process = self._process
        if process is None:
            raise TypeError("there is no other process")
        return await self._once(endpoint, request, lambda marks: process.put(endpoint, text, marks))

    def _closed(self, endpoint: Endpoint) -> tuple[Target, ...]:
        """Return the targets of an endpoint whose bounded sources have ended."""
        return tuple(target for target in endpoint.targets if target.plan.source.bounded and self._is_closed(target))

    async def _once(
        self, endpoint: Endpoint, request: RequestKey | None, take: Callable[[Marks | None], Awaitable[IngestReport]]
    ) -> IngestReport:
        taking = self._counted(endpoint, request, take)
        if request is None:
            return await taking
        return await self._answers.once((endpoint.webhook, endpoint.name, request.key), request.digest, taking)

    async def _counted(
        self, endpoint: Endpoint, request: RequestKey | None, take: Callable[[Marks | None], Awaitable[IngestReport]]
    ) -> IngestReport:
        # A request whose answer is remembered under its key doesn't come here, so it isn't refused for a backlog.
        if self._backpressure is not None:
            self._backpressure.check(target.topic for target in endpoint.targets)
        written: Written = frozenset()
        if request is not None and request.elapsed_ms is not None:
            topics = {target.topic for target in endpoint.targets} | {DEAD_LETTERS}
            written = await self._reading_back.written(topics, request)
        report = await take(None if request is None else request.marks(written))
        for target in endpoint.targets:
            metrics.count(target, report.counts[target.dataset])
        return report


def _without(report: IngestReport, closed: Sequence[Target], rows: int) -> IngestReport:
    """Return a report in which the rows count as taken and left out for datasets whose bounded sources have ended."""
    names = [target.dataset for target in closed]
    ended = f"rows for {', '.join(names)} were ignored: the source is bounded and has ended"
    return replace(
        report,
        warnings=(*report.warnings, ended),
        taken=report.taken | dict.fromkeys(names, rows),
        counts=report.counts | {name: RowCounts(read=rows, left_out=Counter({LeftOut.CLOSED: rows})) for name in names},
    )
