"""Users' functions run in processes of their own, so that one that hangs or dies fails its own request only.

A pool keeps some idle processes. A request takes one, sends it the columns that a function reads, answers its lookups,
and receives the columns that it returns. A process that doesn't answer in time is killed, and a new one takes its
place.

After its first call a function is traced (`caraway.functions.tracing`). If that finds it equal to expressions, these
are computed in the server from then on.

The processes may only compute (`caraway.functions.confinement`).
"""

import asyncio
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from caraway.errors import CarawayError, ExtractorError, UnavailableError, UnknownEntityError
from caraway.functions.confinement.policy import Confinement, Report
from caraway.functions.confinement.process import UnconfinedError, start_fork_server
from caraway.functions.extractors.traced import TracedExtractor
from caraway.functions.extractors.worker import TARGET, Columns, FunctionWorker
from caraway.graph.runtime import SecretProvider

# This makes servers import polars when they start, not at their first large query.
from caraway.query import polars_expressions  # noqa: F401
from caraway.query.batch import Batch, LaterRun
from caraway.query.datasets import DatasetLookups
from caraway.query.model import Computed, PythonStep

log = logging.getLogger(__name__)

MakeLookups = Callable[[PythonStep, bool], DatasetLookups]

# The most seconds that tracing a function may take. It takes much less, except for a function that never ends.
TRACE_SECONDS = 1.0

_NUMBERS = itertools.count()
# The errors of calls after which the process can't be used again.
_FATAL = (TimeoutError, MemoryError, EOFError, OSError)


def no_secrets(name: str) -> str:
    """Raise an error for every name: the provider of a deployment without secrets.

    Raises:
        UnknownEntityError: Always.
    """
    raise UnknownEntityError(f"there is no secret {name!r} here")


class FunctionPool:
    """A pool of processes for users' functions. Thread safe."""

    def __init__(
        self,
        processes: int,
        seconds: float,
        memory_mb: int | None = None,
        *,
        secrets: SecretProvider = no_secrets,
        confinement: Confinement | None = None,
        started: Callable[[Report | None], None] = lambda _: None,
    ) -> None:
        """Prepare a pool for `processes` calls at a time, each limited to `seconds` and to `memory_mb` MiB of memory.

        `secrets` answers `secrets.get` of the functions; it must not block, since it is called on the event loop.
        `confinement` has the rights of functions; None means the default rights. `started` is called with the report of
        the confinement once the processes run.

        Attributes:
            report: The confinement that is in force in the processes; None before the first one has started.
        """
        self.report: Report | None = None
        self._confinement = confinement or Confinement()
        self._started = started
        self._secrets = secrets
        self.seconds = seconds
        self._memory_mb = memory_mb
        self._size = processes
        self._workers = _Workers(processes)
        self._tracing: set[Future[None]] = set()
        # These threads start and end processes, which is slow, and trace functions.
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="extractors")

    def start(self) -> None:
        """Start the processes, so that no request has to wait for that, and log the confinement in force."""
        start_fork_server(TARGET)
        taken = [self._workers.take(self.seconds) for _ in range(self._size)]
        for worker in taken:
            try:
                started = worker or self._worker()
            except (UnconfinedError, OSError) as error:
                # Queries without functions still work; those with functions fail with the same error.
                log.error("%s", error)  # noqa: TRY400 (the text says all)
                self._workers.give(None)
            else:
                self._workers.give(started)
        if self.report is not None:
            say = log.warning if self.report.missing else log.info
            say("users' functions: %s", self.report)
        self._started(self.report)

    def stop(self) -> None:
        """End all idle processes; busy ones end with this process."""
        wait(self._tracing.copy(), TRACE_SECONDS)
        for worker in self._workers.take_all():
            if worker is not None:
                worker.end()

    def compile(self, step: PythonStep, make_lookups: MakeLookups) -> LaterRun:
        """Return the function that adds the outputs of a Python extractor to a batch; see `compile_function`."""
        return _Remote(self, next(_NUMBERS), step, make_lookups)

    def call(self, remote: "_Remote", batch: Batch) -> Columns:
        """Run a function and wait for it.

        Raises:
            ExtractorError: The function failed, took too long or too much memory, or ended its process.
            UnavailableError: All processes are busy.
        """
        try:
            idle = self._workers.take(self.seconds)
        except TimeoutError:
            raise self._busy(remote) from None
        worker = idle or self._start()
        try:
            columns = worker.call(*remote.arguments(batch), self.seconds)
        except ExtractorError:
            self._workers.give(worker)
            raise
        except _FATAL as error:
            raise self._ended(remote, error, self._replace(worker)) from None
        except BaseException:
            # The channel may be in the middle of a message, so this process can't be used again.
            self._replace(worker)
            raise
        self._workers.give(worker)
        self._trace_later(remote)
        return columns

    async def call_async(self, remote: "_Remote", batch: Batch) -> Columns:
        """Run a function without blocking the event loop; see `call`."""
        loop = asyncio.get_running_loop()
        try:
            idle = await self._workers.take_async(self.seconds)
        except TimeoutError:
            raise self._busy(remote) from None
        worker = idle or await self._start_async()
        try:
            columns = await worker.call_async(*remote.arguments(batch), self.seconds)
        except ExtractorError:
            self._workers.give(worker)
            raise
        except _FATAL as error:
            how = await loop.run_in_executor(self._threads, self._replace, worker)
            raise self._ended(remote, error, how) from None
        except BaseException:
            # The request was cancelled, so nothing waits for the process to be replaced either.
            self._threads.submit(self._replace, worker)
            raise
        self._workers.give(worker)
        self._trace_later(remote)
        return columns

    def _trace_later(self, remote: "_Remote") -> None:
        """Start tracing a function in another thread, once, if that hasn't been done; no request waits for it."""
        if not remote.asked:
            remote.asked = True
            tracing = self._threads.submit(self._trace, remote)
            self._tracing.add(tracing)
            tracing.add_done_callback(self._tracing.discard)

    def _trace(self, remote: "_Remote") -> None:
        try:
            # This takes an idle process or none: waiting here would block a thread that replaces processes which hang.
            worker = self._workers.take(0) or self._start()
        except (TimeoutError, CarawayError):
            # All processes are busy, so the next call of the function tries again.
            remote.asked = False
            return
        try:
            found = worker.trace(remote.step, TRACE_SECONDS)
        except BaseException:
            # The function resists tracing, or the channel may be in the middle of an answer: it stays a function.
            self._replace(worker)
            raise
        self._workers.give(worker)
        if found is not None:
            remote.traced = TracedExtractor(remote.step, found)

    def _start(self) -> FunctionWorker:
        """Start a process for a slot that was taken."""
        try:
            return self._worker()
        except OSError as error:
            self._workers.give(None)
            raise UnavailableError(f"no process for extractors can be started: {error}") from error
        except BaseException:
            self._workers.give(None)
            raise

    def _worker(self) -> FunctionWorker:
        worker = FunctionWorker(self._memory_mb, self._secrets, self._confinement)
        self.report = worker.report
        return worker

    async def _start_async(self) -> FunctionWorker:
        starting = self._threads.submit(self._start)
        try:
            return await asyncio.shield(asyncio.wrap_future(starting))
        except asyncio.CancelledError:
            # The request was cancelled, so the process is kept for the next one.
            starting.add_done_callback(self._keep)
            raise

    def _keep(self, started: "Future[FunctionWorker]") -> None:
        if started.exception() is None:
            self._workers.give(started.result())

    def _busy(self, remote: "_Remote") -> CarawayError:
        return UnavailableError(f"{remote.title}: all {self._size} processes for extractors are busy")

    def _ended(self, remote: "_Remote", error: BaseException, how: str) -> CarawayError:
        match error:
            case TimeoutError():
                said = f"did not end within {self.seconds:g} s; its process was ended"
            case MemoryError():
                said = f"needs more than {self._memory_mb} MB of memory; its process was ended"
            case _:
                said = f"ended its process ({how})"
        return ExtractorError(f"{remote.title} {said}")

    def _replace(self, worker: FunctionWorker) -> str:
        try:
            return worker.end()
        finally:
            self._workers.give(None)


@dataclass(slots=True)
class _Remote:
    """A step whose function runs in another process, which knows the function by `number`.

    `traced` computes the step in this process once tracing, which `asked` records, has found expressions. If these
    raise an error, the function is called, so that the error is its own.
    """

    pool: FunctionPool
    number: int
    step: PythonStep
    make_lookups: MakeLookups
    asked: bool = False
    traced: TracedExtractor | None = None

    @property
    def title(self) -> str:
        return f"extractor {self.step.extractor} of featureset {self.step.featureset}"

    def arguments(self, batch: Batch) -> tuple[int, PythonStep, Batch, DatasetLookups]:
        return self.number, self.step, batch, self.make_lookups(self.step, batch.past)

    @property
    def expressions(self) -> tuple[Computed, ...]:
        return () if self.traced is None else self.traced.features

    def __call__(self, batch: Batch) -> None:
        if self.traced is None or not self.traced.fills(batch):
            batch.columns.update(self.pool.call(self, batch))

    async def later(self, batch: Batch) -> None:
        if self.traced is None or not self.traced.fills(batch):
            batch.columns.update(await self.pool.call_async(self, batch))


class _Workers:
    """The idle workers, and the requests that wait for one. None stands for a process that isn't started yet."""

    def __init__(self, size: int) -> None:
        self._lock = threading.Lock()
        # The last one is taken first, because its caches are still warm.
        self._idle: list[FunctionWorker | None] = [None] * size
        self._waiting: deque[Future[FunctionWorker | None]] = deque()

    def take(self, seconds: float) -> FunctionWorker | None:
        """Take an idle worker, waiting for one at most so long. Raises `TimeoutError` if all workers are busy."""
        taken = self._next()
        try:
            return taken.result(seconds)
        except BaseException:
            self._leave(taken)
            raise

    async def take_async(self, seconds: float) -> FunctionWorker | None:
        """Take an idle worker without blocking the event loop; see `take`."""
        taken = self._next()
        if taken.done():
            return taken.result()
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(taken)
        except BaseException:
            self._leave(taken)
            raise

    def take_all(self) -> list[FunctionWorker | None]:
        """Take all workers that are idle now."""
        with self._lock:
            taken, self._idle = self._idle, []
            return taken

    def give(self, worker: FunctionWorker | None) -> None:
        """Return a worker to the pool; the request that has waited longest gets it."""
        with self._lock:
            while self._waiting:
                future = self._waiting.popleft()
                if future.set_running_or_notify_cancel():
                    future.set_result(worker)
                    return
            self._idle.append(worker)

    def _next(self) -> "Future[FunctionWorker | None]":
        future: Future[FunctionWorker | None] = Future()
        with self._lock:
            if self._idle:
                future.set_result(self._idle.pop())
            else:
                self._waiting.append(future)
        return future

    def _leave(self, taken: "Future[FunctionWorker | None]") -> None:
        """Stop waiting; a worker that arrived at the last moment goes back to the pool."""
        if not taken.cancel():
            self.give(taken.result())
