"""The run of an offline query, part by part, so that it goes on behind the last part after its process has died."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog

from caraway.compute.query.executor import CompiledPlan
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.errors import CarawayError, InvalidInputError, UnavailableError
from caraway.offline.coverage import Coverage, notes
from caraway.offline.queries.evaluation import Evaluated, evaluate
from caraway.offline.queries.inputs import InputPart, InputRows
from caraway.offline.queries.model import OfflineQuery, Part, QueryStatus
from caraway.offline.queries.outputs import result_table, write_manifest, write_part
from caraway.offline.queries.store import OfflineQueries
from caraway.offline.stopwatch import WRITE, Stopwatch

LOG = structlog.get_logger(__name__)

Evaluate = Callable[[InputPart, int, Callable[[], bool]], Evaluated | None]

# The number of rows of a part. A part that calls users' functions has fewer rows: if a function fails, all rows of the
# call fail together, and are computed again in halves.
PART_ROWS, PART_ROWS_OF_FUNCTIONS = 100_000, 5_000
# On Spark, all records are divided anew for each part, so the parts are larger there.
PART_ROWS_ON_SPARK = 1_000_000
# Seconds between two looks whether a query was cancelled while a part is computed.
LOOK_SECONDS = 1.0
# A query fails after this many attempts without a new part.
ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRun:
    """An offline query with all that its run needs.

    Attributes:
        query: The query, as it was recorded when the run began.
        plan: Its plan, which reads what is archived.
        rows: Its rows.
        queries: The records of queries.
        output: The object store of its results.
        prefix: The folder of its results.
        part_rows: The rows of a part.
        coverage: How far back the records go that it reads.
        evaluate: Computes the outputs for a part; see `caraway.offline.queries.evaluation.evaluate`.
        stopping: Returns whether the process is to end; the query then goes on in another one.
        clock: Returns the time in seconds.
        watch: Takes the time of steps.
    """

    query: OfflineQuery
    plan: CompiledPlan
    rows: InputRows
    queries: OfflineQueries
    output: ObjectFolder
    prefix: str
    part_rows: int | None = None
    evaluate: Evaluate | None = None
    coverage: Sequence[Coverage] = ()
    stopping: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    watch: Stopwatch = field(default_factory=Stopwatch)

    def run(self) -> QueryStatus | None:
        """Compute all parts that aren't written yet; return how the query ended, None if it didn't.

        Raises:
            InvalidInputError: The input can't be read.
            UnavailableError: Something doesn't answer; the query goes on later.
        """
        query = self.query
        size = self.part_rows or (PART_ROWS_OF_FUNCTIONS if self.plan.runs_user_code else PART_ROWS)
        parts = list(query.parts)
        for part in self.rows.parts(size, query.rows_done):
            written = None
            if not self._is_cancelled() and not self.stopping():
                written = self._write(part, sum(earlier.rows for earlier in parts), len(parts))
            if written is None:
                return self._interrupted()
            parts.append(written)
            self.queries.advance(query.id, parts)
        write_manifest(self.output, self.prefix, self.queries.get(query.id), self.plan.plan.outputs)
        self.queries.end(query.id, QueryStatus.SUCCEEDED)
        return QueryStatus.SUCCEEDED

    def _interrupted(self) -> QueryStatus | None:
        return ended_if_cancelled(self.queries, self.query.id)

    def _is_cancelled(self) -> bool:
        return self.queries.get(self.query.id).cancelled

    def _write(self, part: InputPart, first: int, number: int) -> Part | None:
        """Compute and write a part; return None if the query was cancelled or the process is to end meanwhile."""
        compute = self.evaluate or partial(evaluate, self.plan)
        evaluated = compute(part, first, interruption(self.queries, self.query.id, self.stopping, self.clock))
        if evaluated is None:
            return None
        short = notes(self.coverage, evaluated.times)
        timestamp_column = self.query.request.timestamp_column
        table = result_table(self.plan.plan.outputs, evaluated, timestamp_column, part.others, short)
        with self.watch.step(WRITE):
            size = write_part(self.output, self.prefix, number, table)
        failed = sum(error is not None for error in evaluated.errors)
        LOG.info("wrote a part", query=self.query.id, part=number, rows=table.num_rows, failed=failed)
        return Part(
            rows=table.num_rows,
            failed=failed,
            short=sum(note is not None for note in short),
            own_events=evaluated.own_events,
            bytes=size,
            seconds=self.watch.taken(),
        )


def interruption(
    queries: OfflineQueries,
    query_id: str,
    stopping: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[], bool]:
    """Return the function that returns whether a query was cancelled, or its process is to end."""
    look_at = clock() + LOOK_SECONDS

    def interrupted() -> bool:
        nonlocal look_at
        if stopping():
            return True
        if clock() < look_at:
            return False
        look_at = clock() + LOOK_SECONDS
        return queries.get(query_id).cancelled

    return interrupted


def ended_if_cancelled(queries: OfflineQueries, query_id: str) -> QueryStatus | None:
    """End a query whose work was interrupted, if it was cancelled; otherwise it goes on later, and None is returned."""
    if not queries.get(query_id).cancelled:
        return None
    queries.end(query_id, QueryStatus.CANCELLED)
    return QueryStatus.CANCELLED


def attempted(queries: OfflineQueries, query: OfflineQuery, run: Callable[[], QueryStatus | None]) -> None:
    """Run a query once more, and record how that ended, if it can be recorded."""
    if query.cancelled:
        queries.end(query.id, QueryStatus.CANCELLED)
        return
    if query.attempts >= ATTEMPTS:
        reason = query.error or "its process ended each time, perhaps for lack of memory; the server's log may tell"
        queries.end(query.id, QueryStatus.FAILED, f"given up after {query.attempts} attempts: {reason}")
        return
    queries.attempt(query.id)
    try:
        if run() is None:
            # The process was asked to end, as at each restart of a server. That doesn't count as an attempt.
            queries.attempt(query.id, -1)
    except InvalidInputError as error:
        queries.end(query.id, QueryStatus.FAILED, str(error))
    except UnavailableError as error:
        # An outage of the database or the broker doesn't count as an attempt either, however long it lasts.
        LOG.warning("an offline query waits", query=query.id, reason=str(error))
        queries.attempt(query.id, -1)
        queries.note(query.id, str(error))
        raise
    except CarawayError as error:
        queries.end(query.id, QueryStatus.FAILED, str(error))
