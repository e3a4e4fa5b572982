"""The processes of a pool, and the requests that wait for one of them."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from caraway.errors import UnavailableError
from caraway.functions.confinement.policy import Report
from caraway.functions.confinement.process import UnconfinedError, start_fork_server
from caraway.functions.extractors.worker import TARGET, FunctionWorker

log = logging.getLogger(__name__)


class Workers:
    """A fixed number of workers, each with a process. A request takes a worker, and gives it back or replaces it.

    A worker stands as None in the pool while its process isn't started; the request that takes it starts the process.
    """

    def __init__(self, size: int, make: Callable[[], FunctionWorker], threads: ThreadPoolExecutor) -> None:
        """Prepare `size` workers, whose processes `make` starts, in one of `threads` if an event loop waits."""
        self._make = make
        self._threads = threads
        self._lock = threading.Lock()
        # The worker that was given back last is taken first, because the caches of its process are still warm.
        self._idle: list[FunctionWorker | None] = [None] * size
        self._waiting: deque[Future[FunctionWorker | None]] = deque()

    def start_all(self) -> Report | None:
        """Start the processes of all idle workers, and return the confinement in force; None if none can be started."""
        start_fork_server(TARGET)
        report = None
        for idle in self._take_all():
            worker = idle
            try:
                worker = worker or self._make()
                report = worker.report
            except (UnconfinedError, OSError) as error:
                # Queries without functions still work; those with functions fail with the same error.
                log.error("%s", error)  # noqa: TRY400 (the text says all)
            self.give(worker)
        return report

    def end_all(self) -> None:
        """End the processes of all idle workers, and take these out of the pool."""
        for worker in self._take_all():
            if worker is not None:
                worker.end()

    def take(self, seconds: float) -> FunctionWorker:
        """Take a worker, waiting for an idle one at most so long.

        Raises:
            TimeoutError: All workers are busy.
            UnavailableError: The worker's process can't be started.
        """
        taken = self._next()
        try:
            idle = taken.result(seconds)
        except BaseException:
            self._leave(taken)
            raise
        return idle or self._started()

    async def take_async(self, seconds: float) -> FunctionWorker:
        """Take a worker without blocking the event loop; see `take`."""
        taken = self._next()
        if taken.done():
            idle = taken.result()
        else:
            try:
                async with asyncio.timeout(seconds):
                    idle = await asyncio.wrap_future(taken)
            except BaseException:
                self._leave(taken)
                raise
        return idle or await self._started_async()

    def give(self, worker: FunctionWorker | None) -> None:
        """Return a worker to the pool; the request that has waited longest gets it."""
        with self._lock:
            while self._waiting:
                future = self._waiting.popleft()
                if future.set_running_or_notify_cancel():
                    future.set_result(worker)
                    return
            self._idle.append(worker)

    def replace(self, worker: FunctionWorker) -> str:
        """End the process of a worker, return a new worker to the pool, and return how the process ended."""
        try:
            return worker.end()
        finally:
            self.give(None)

    def _take_all(self) -> list[FunctionWorker | None]:
        with self._lock:
            taken, self._idle = self._idle, []
            return taken

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

    def _started(self) -> FunctionWorker:
        """Start the process of a worker that was taken."""
        try:
            return self._make()
        except BaseException as error:
            self.give(None)
            if isinstance(error, OSError):
                raise UnavailableError(f"no process for extractors can be started: {error}") from error
            raise

    async def _started_async(self) -> FunctionWorker:
        starting = self._threads.submit(self._started)
        try:
            return await asyncio.shield(asyncio.wrap_future(starting))
        except asyncio.CancelledError:
            # The request was cancelled while a process was being started for it, so another request gets that process.
            starting.add_done_callback(self._keep)
            raise

    def _keep(self, started: "Future[FunctionWorker]") -> None:
        if started.exception() is None:
            self.give(started.result())
