"""Users' functions run in processes of their own, so that one that hangs or dies fails its own request only.

A pool keeps some idle processes. A request takes one, sends it the columns that a function reads, answers its lookups,
and receives the columns that it returns. A process that doesn't answer in time is killed.

A process runs the functions of one commit only. So a function can't see or change the rows of functions of other
branches, and is gone when its commit is no longer served.

After its first call a function is traced (`caraway.graph.tracing`). If that finds it equal to expressions, these
are computed in the server from then on.

The processes may only compute (`caraway.process.confinement`).
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from caraway.compute.extractors.traced import TracedExtractor
from caraway.compute.extractors.worker import TARGET, Columns, FunctionWorker
from caraway.compute.extractors.workers import Workers

# With this import, servers load polars when they start, whatever else they import, so that their first large query
# doesn't wait for polars.
from caraway.compute.query import polars_expressions  # noqa: F401
from caraway.compute.query.batch import Batch, LaterRun
from caraway.compute.query.datasets import DatasetLookups
from caraway.compute.query.model import Computed, PythonStep
from caraway.errors import CarawayError, ExtractorError, UnavailableError, UnknownEntityError
from caraway.process.confinement.policy import Confinement, Report
from caraway.process.confinement.requests import EndedError, RestartedProcess
from caraway.process.secrets.provider import SecretProvider

log = logging.getLogger(__name__)

MakeLookups = Callable[[PythonStep, bool], DatasetLookups]

# Tracing a function may take at most this many seconds. Only a function that never ends takes so long.
TRACE_SECONDS = 1.0
# A commit waits at most this many seconds for one function to be loaded, with the packages that it imports. Large
# packages take some ten seconds on a busy machine.
LOAD_SECONDS = 30.0

_NUMBERS = itertools.count()
# After one of these errors the process has ended or may still run the function, so another process runs the next call.
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
        """
        self._rights = rights = confinement or Confinement()
        self._started = started
        self.seconds = seconds
        self._memory_mb = memory_mb
        self._size = processes
        # The threads start and end processes, which is slow, and trace functions.
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="extractors")
        self._workers = Workers(processes, lambda: FunctionWorker(memory_mb, secrets, rights), self._threads)
        self._tracing: set[Future[None]] = set()

    def start(self) -> None:
        """Start the processes, so that no request has to wait for that, and log the confinement in force."""
        report = self._workers.start_all()
        if report is not None:
            log.log(logging.WARNING if report.missing else logging.INFO, "users' functions: %s", report)
        self._started(report)

    def stop(self) -> None:
        """End all idle processes; busy ones end with this process."""
        wait(self._tracing.copy(), TRACE_SECONDS)
        self._workers.end_all()

    def lacking(self, functions: Sequence[bytes]) -> list[str]:
        """Return for each pickled function why it can't run with the modules that are installed here; "" if it can.

        Raises `UnavailableError` if no process can be started.
        """
        # The process doesn't belong to the pool: loading a function runs parts of its code, and functions of other
        # commits must not run in the same process afterwards.
        process = RestartedProcess(TARGET, self._rights, self._memory_mb)

        def ask(function: bytes) -> str:
            try:
                return process.ask(function, LOAD_SECONDS, None, str)
            except EndedError as error:
                return f"it {error} when it was loaded"

        try:
            return list(map(ask, functions))
        finally:
            process.end()

    def compiler(self, commit: str) -> Callable[[PythonStep, MakeLookups], LaterRun]:
        """Return the function that compiles the Python extractors of a commit; see `compile_function`.

        The extractors run in processes that run functions of this commit only.
        """
        return lambda step, make_lookups: _Remote(self, commit, next(_NUMBERS), step, make_lookups)

    def end_unused(self, commits: Collection[str]) -> None:
        """End the idle processes of other commits than these, and those that haven't been used for long."""
        self._workers.end_unused(commits)

    def call(self, remote: "_Remote", batch: Batch) -> Columns:
        """Run a function and wait for it.

        Raises:
            ExtractorError: The function failed, took too long or too much memory, or ended its process.
            UnavailableError: All processes are busy.
        """
        try:
            worker = self._workers.take(remote.commit, self.seconds)
        except TimeoutError:
            raise self._busy(remote) from None
        try:
            columns = worker.call(*remote.arguments(batch), self.seconds)
        except ExtractorError:
            self._workers.give(worker)
            raise
        except _FATAL as error:
            raise self._ended(remote, error, self._workers.discard(worker)) from None
        except BaseException:
            # The channel may have half of a message, so this process can't be used again.
            self._workers.discard(worker)
            raise
        self._workers.give(worker)
        self._trace_later(remote)
        return columns

    async def call_async(self, remote: "_Remote", batch: Batch) -> Columns:
        """Run a function without blocking the event loop; see `call`."""
        try:
            worker = await self._workers.take_async(remote.commit, self.seconds)
        except TimeoutError:
            raise self._busy(remote) from None
        try:
            columns = await worker.call_async(*remote.arguments(batch), self.seconds)
        except ExtractorError:
            self._workers.give(worker)
            raise
        except _FATAL as error:
            loop = asyncio.get_running_loop()
            how = await loop.run_in_executor(self._threads, self._workers.discard, worker)
            raise self._ended(remote, error, how) from None
        except BaseException:
            # The request was cancelled while its function ran, so the function must end at once. Another thread ends
            # the process, since that would block the event loop.
            self._threads.submit(self._workers.discard, worker)
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
            # A wait for an idle process would block one of the few threads, which also end processes that hang.
            worker = self._workers.take(remote.commit, 0)
        except (TimeoutError, CarawayError):
            # All processes are busy, so the next call of the function tries again.
            remote.asked = False
            return
        try:
            found = worker.trace(remote.step, TRACE_SECONDS)
        except BaseException:
            # The function took too long or ended the process, so it isn't traced again. The channel may have half of an
            # answer, so the process can't be used again.
            self._workers.discard(worker)
            raise
        self._workers.give(worker)
        if found is not None:
            remote.traced = TracedExtractor(remote.step, found)

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


@dataclass(slots=True)
class _Remote:
    """A step of a commit whose function runs in another process, which knows the function by `number`.

    `asked` is true once tracing was started. `traced` computes the step in this process if tracing has found
    expressions. If these raise an error, the function is called, so that users see the error of the function.
    """

    pool: FunctionPool
    commit: str
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
