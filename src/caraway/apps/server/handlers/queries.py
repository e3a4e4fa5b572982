"""Execution of queries for the handlers: in the event loop or in a thread, with bounds on their time and number."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from caraway.apps.server.access.shares import Places
from caraway.apps.server.http.errors import DeadlineError, status_of
from caraway.compute.query.batch import Batch
from caraway.compute.query.executor import Answer, CompiledPlan, StoredColumns
from caraway.compute.query.model import Instants
from caraway.dataplane.archive import served_metrics as metrics
from caraway.dataplane.ingest.table import MAX_ROWS
from caraway.errors import CarawayError, TooLargeError
from caraway.process.thread_names import show_name

Table = Sequence[object] | Mapping[str, object]
# A function that is called with the plan and the computed columns of each query that was answered.
Keep = Callable[[CompiledPlan, Batch], None]
T = TypeVar("T")

# A query with more rows than this runs in a thread, because in the event loop it would hold up all other requests.
INLINE_ROWS = 500
THREADS = 4
# The most queries and lookups that run in a thread, wait for a thread, or call Python extractors. A further one is
# refused (429), since it would wait for seconds.
MAX_UNDER_WAY = 64
# The most values (rows times columns) of an answer. Each takes up to 250 bytes, in Python and as text, so an answer
# takes up to 250 MB, besides the bytes of its texts and lists (`caraway.dtypes.sizes`).
MAX_CELLS = 1_000_000
SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Given:
    """The input of a query: rows or columns, and the instant of each row, None for now.

    `is_large` is true for input that came in a large body, so that even a few rows may take long.
    """

    data: Table
    at: Instants | None = None
    is_large: bool = False


class Queries:
    """Runs compiled plans, small queries in the event loop and large ones in threads, and counts them."""

    def __init__(self) -> None:
        """Create the threads."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="query", initializer=show_name)
        self._places = Places(MAX_UNDER_WAY, "large requests are under way")

    async def answer(self, plan: CompiledPlan, given: Given, workflow: str | None, keep: Keep | None = None) -> Answer:
        """Compute a plan's outputs as values that JSON can hold."""
        return await self._counted(plan, given, workflow, partial(_taken, plan, keep, plan.answer))

    async def columns(
        self, plan: CompiledPlan, given: Given, workflow: str | None, keep: Keep | None = None
    ) -> StoredColumns:
        """Compute a plan's outputs in stored form."""
        return await self._counted(plan, given, workflow, partial(_taken, plan, keep, plan.stored))

    async def _counted(self, plan: CompiledPlan, given: Given, workflow: str | None, take: Callable[[Batch], T]) -> T:
        data, at = given.data, given.at
        label = metrics.EXTRACTIONS.workflow(workflow)
        rows = rows_of(data)
        started = time.perf_counter()
        try:
            if rows > INLINE_ROWS or given.is_large:
                check_rows(rows, len(plan.output_names))
                answer = await self.in_thread(lambda: take(plan.evaluate(data, at)))
            elif plan.runs_user_code:
                answer = take(await self._under_limits(partial(plan.evaluate_async, data, at)))
            elif plan.asks_others:
                answer = take(await plan.evaluate_async(data, at))
            else:
                answer = take(plan.evaluate(data, at))
        except CarawayError as error:
            count_failure(error, workflow)
            raise
        metrics.EXTRACTIONS.count(plan.output_names, label, rows, time.perf_counter() - started)
        return answer

    async def in_thread(self, run: Callable[[], T]) -> T:
        """Run slow work in a thread.

        Raises:
            BusyError: Too many queries are under way, of all callers or of this one.
            DeadlineError: The work takes too long. Its thread goes on to the end.
        """
        leave = self._places.enter()
        # The context is copied, so that log lines of the thread have the id of the request.
        future = asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, run)
        future.add_done_callback(lambda _: leave())
        done, _ = await asyncio.wait({future}, timeout=SECONDS)
        if not done:
            # The thread goes on, and its result is dropped. An exception must still be retrieved, or asyncio logs it as
            # one that was never retrieved.
            future.add_done_callback(lambda late: late.cancelled() or late.exception())
            raise _too_late()
        return future.result()

    async def _under_limits(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run a query that mostly waits for the processes of Python extractors, under the limits of `in_thread`."""
        leave = self._places.enter()
        try:
            async with asyncio.timeout(SECONDS):
                return await work()
        except TimeoutError:
            raise _too_late() from None
        finally:
            leave()


def _taken(plan: CompiledPlan, keep: Keep | None, take: Callable[[Batch], T], batch: Batch) -> T:
    """Take the answer out of a batch, unless it would be too large, and pass the batch to `keep`."""
    plan.check_size(batch)
    taken = take(batch)
    if keep is not None:
        keep(plan, batch)
    return taken


def _too_late() -> DeadlineError:
    return DeadlineError(f"the request took more than {SECONDS:g} s; send fewer rows")


def count_failure(error: CarawayError, workflow: str | None) -> None:
    """Count a query that failed."""
    label = metrics.EXTRACTIONS.workflow(workflow)
    metrics.EXTRACT_ERRORS.labels(label, metrics.QUERY_TARGET, status_of(error)).inc()


def check_rows(rows: int, columns: int = 1) -> None:
    """Check that a request hasn't too many rows, and that its answer hasn't too many values."""
    if rows > MAX_ROWS:
        raise TooLargeError(
            f"a request may have {MAX_ROWS:,} rows, this one has {rows:,}; send them in several requests"
        )
    if rows * columns > MAX_CELLS:
        raise TooLargeError(
            f"an answer may have {MAX_CELLS:,} values, {rows:,} rows of {columns:,} columns have more; "
            "ask in several requests"
        )


def rows_of(data: Table) -> int:
    """Return the number of rows, without a check that the columns have one length."""
    if isinstance(data, Mapping):
        return max((len(column) for column in data.values() if isinstance(column, list)), default=0)
    return len(data)
