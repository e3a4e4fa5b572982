"""The processes of a pool, each for the functions of one commit, and the requests that wait for their turn."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor

from caraway.compute.extractors.worker import TARGET, FunctionWorker
from caraway.errors import UnavailableError
from caraway.process.confinement.policy import Report
from caraway.process.confinement.process import UnconfinedError, start_fork_server

log = logging.getLogger(__name__)

# A pool keeps at most `_MOST_IDLE` idle processes for each call that may run at a time, or `_LEAST_MOST_IDLE` if that
# is more. With fewer, the calls of branches that take turns would often have to start a process, which takes some 30
# ms. An idle process holds some tens of MiB.
_MOST_IDLE, _LEAST_MOST_IDLE = 2, 8
# A process that has had no call for this many seconds is ended.
IDLE_S = 600.0


class Workers:
    """Workers, each with a process. A request takes one, and gives it back or discards it.

    Users' functions can change everything in their process, so a process that has run a function runs no function of
    another commit. Processes that haven't run any are kept for the next commit.
    """

    def __init__(self, size: int, make: Callable[[], FunctionWorker], threads: ThreadPoolExecutor) -> None:
        """Prepare workers for `size` requests at a time.

        `make` starts the process of a worker, in one of `threads` if an event loop waits.
        """
        self._make = make
        self._threads = threads
        self._size = size
        self._most_idle = max(_LEAST_MOST_IDLE, _MOST_IDLE * size)
        self._lock = threading.Lock()
        # The number of further requests that may take a worker without waiting.
        self._turns = size
        self._waiting: deque[Future[None]] = deque()
        # The worker that was given back last is at the end of the list, and is taken first, since its caches are still
        # warm.
        self._idle: list[FunctionWorker] = []

    def start_all(self) -> Report | None:
        """Start processes for the first requests, and return the confinement in force; None if none can be started."""
        start_fork_server(TARGET)
        report = None
        for _ in range(self._size):
            try:
                worker = self._make()
            except (UnconfinedError, OSError) as error:
                # Queries without functions still work; those with functions fail with the same error.
                log.error("%s", error)  # noqa: TRY400 (the text says all)
            else:
                report = worker.report
                self._keep(worker)
        return report

    def end_all(self) -> None:
        """End all idle processes."""
        self._end(lambda _: True)

    def end_unused(self, commits: Collection[str]) -> None:
        """End the idle processes of other commits than these, and those that have been idle for `IDLE_S`."""
        since = time.monotonic() - IDLE_S
        self._end(lambda worker: worker.commit not in {None, *commits} or 0 < worker.used_at < since)

    def take(self, commit: str, seconds: float) -> FunctionWorker:
        """Take a worker for the functions of a commit, waiting at most `seconds` until one is free.

        Raises:
            TimeoutError: The most requests that may run at a time are running.
            UnavailableError: The worker's process can't be started.
        """
        turn = self._next_turn()
        try:
            turn.result(seconds)
        except BaseException:
            self._leave(turn)
            raise
        return self._idle_for(commit) or self._started(commit)

    async def take_async(self, commit: str, seconds: float) -> FunctionWorker:
        """Take a worker without blocking the event loop; see `take`."""
        turn = self._next_turn()
        if not turn.done():
            try:
                async with asyncio.timeout(seconds):
                    await asyncio.wrap_future(turn)
            except BaseException:
                self._leave(turn)
                raise
        return self._idle_for(commit) or await self._started_async(commit)

    def give(self, worker: FunctionWorker) -> None:
        """Return a worker to the pool, for the next call of its commit."""
        worker.used_at = time.monotonic()
        self._keep(worker)
        self._end_turn()

    def discard(self, worker: FunctionWorker) -> str:
        """End the process of a worker that was taken, and return how it ended."""
        try:
            return worker.end()
        finally:
            self._end_turn()

    def _keep(self, worker: FunctionWorker) -> None:
        with self._lock:
            self._idle.append(worker)
            surplus = self._idle.pop(0) if len(self._idle) > self._most_idle else None
        if surplus is not None:
            self._threads.submit(surplus.end)

    def _end(self, is_unused: Callable[[FunctionWorker], bool]) -> None:
        with self._lock:
            unused = [worker for worker in self._idle if is_unused(worker)]
            self._idle = [worker for worker in self._idle if worker not in unused]
        for worker in unused:
            worker.end()

    def _idle_for(self, commit: str) -> FunctionWorker | None:
        """Return an idle worker that has run functions of this commit, or else none at all."""
        with self._lock:
            for wanted in (commit, None):
                for position in reversed(range(len(self._idle))):
                    if self._idle[position].commit == wanted:
                        worker = self._idle.pop(position)
                        worker.commit = commit
                        return worker
        return None

    def _next_turn(self) -> "Future[None]":
        future: Future[None] = Future()
        with self._lock:
            if self._turns:
                self._turns -= 1
                future.set_result(None)
            else:
                self._waiting.append(future)
        return future

    def _end_turn(self) -> None:
        """Pass the turn to the oldest of the requests that wait, or keep it for the next request."""
        with self._lock:
            while self._waiting:
                future = self._waiting.popleft()
                if future.set_running_or_notify_cancel():
                    future.set_result(None)
                    return
            self._turns += 1

    def _leave(self, turn: "Future[None]") -> None:
        """Stop waiting; a turn that came at the last moment goes to another request."""
        if not turn.cancel():
            self._end_turn()

    def _started(self, commit: str) -> FunctionWorker:
        """Start a process for a request whose turn it is."""
        try:
            worker = self._make()
        except BaseException as error:
            self._end_turn()
            if isinstance(error, OSError):
                raise UnavailableError(f"no process for extractors can be started: {error}") from error
            raise
        worker.commit = commit
        return worker

    async def _started_async(self, commit: str) -> FunctionWorker:
        starting = self._threads.submit(self._started, commit)
        try:
            return await asyncio.shield(asyncio.wrap_future(starting))
        except asyncio.CancelledError:
            # The request was cancelled while a process was being started for it, so another request gets that process.
            starting.add_done_callback(self._keep_started)
            raise

    def _keep_started(self, started: "Future[FunctionWorker]") -> None:
        if started.exception() is None:
            self.give(started.result())
