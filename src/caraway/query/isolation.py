"""Users' functions in processes of their own, so that one that hangs or dies costs its own request only.

A pool keeps some processes that wait for work. A request takes one, sends it the columns that a function reads, answers
its lookups, and takes the columns that it gives. What isn't done in time is killed, and a new process takes its place.

They are forked from a server process that Python starts for this (`forkserver`): a fork of our own would copy a process
with threads and an open database.
"""

import itertools
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import pandas as pd

from caraway.errors import CarawayError, ExtractorError, InvalidInputError, UnavailableError
from caraway.graph.runtime import LookupProvider
from caraway.memory import limit_memory
from caraway.query.batch import Batch, Run
from caraway.query.functions import MakeProvider, compile_function
from caraway.query.model import Instants, PythonStep

# Functions that a process keeps. Each commit brings new ones; beyond so many it forgets them all.
MAX_KNOWN = 200
JOIN_S = 1.0

Columns = Mapping[str, list[object]]
Looked = tuple[pd.DataFrame, "pd.Series[bool]"]

_NUMBERS = itertools.count()


class Worker:
    """A process that runs users' functions, one call after the other."""

    def __init__(self, memory_mb: int | None) -> None:
        """Start it; its functions may take so much memory, in MiB."""
        context = multiprocessing.get_context("forkserver")
        self._pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=serve, args=(theirs, memory_mb), daemon=True, name="extractors"
        )
        self._process.start()
        theirs.close()
        self._known: set[int] = set()

    def call(self, number: int, step: PythonStep, batch: Batch, lookups: LookupProvider, seconds: float) -> Columns:
        """Run the function of a step, known under `number`.

        Raises:
            TimeoutError: It isn't done in time.
            EOFError: The process has ended.
            MemoryError: The function needs more memory than it may take; the process ends.
            ExtractorError: The function failed; the process can be used again.
        """
        deadline = time.monotonic() + seconds
        forget = len(self._known) >= MAX_KNOWN
        if forget:
            self._known.clear()
        columns = {column.name: batch.columns[column.name] for column in step.inputs}
        self._pipe.send(
            (forget, number, None if number in self._known else step, columns, batch.rows, batch.at, batch.past)
        )
        self._known.add(number)
        while True:
            if not self._pipe.poll(max(deadline - time.monotonic(), 0)):
                raise TimeoutError
            kind, what = self._pipe.recv()
            match kind:
                case "done":
                    done: Columns = what
                    return done
                case "failed":
                    raise ExtractorError(what)
                case "spent":
                    raise MemoryError
                case _:
                    self._pipe.send(_looked_up(lookups, what))

    def end(self) -> str:
        """End the process, and say how it has ended."""
        self._pipe.close()
        # One that has closed its end is about to end by itself.
        self._process.join(0.2)
        self._process.kill()
        self._process.join(JOIN_S)
        code = self._process.exitcode
        if code is None or code >= 0:
            return f"exit code {code}"
        return signal.Signals(-code).name


def _looked_up(lookups: LookupProvider, asked: tuple[Any, ...]) -> tuple[Looked | None, str]:
    try:
        return lookups(*asked), ""
    except CarawayError as error:
        return None, str(error)


class FunctionPool:
    """Some processes for users' functions. Thread safe."""

    def __init__(self, processes: int, seconds: float, memory_mb: int | None = None) -> None:
        """Prepare for so many calls at a time, each of which may take so many seconds and so much memory, in MiB."""
        self._seconds = seconds
        self._memory_mb = memory_mb
        self._size = processes
        # The one that was used last is still warm. None stands for a process that isn't started yet.
        self._idle: queue.LifoQueue[Worker | None] = queue.LifoQueue()
        for _ in range(processes):
            self._idle.put(None)

    def start(self) -> None:
        """Start the processes, so that no request has to wait for it."""
        multiprocessing.get_context("forkserver").set_forkserver_preload([__name__])
        taken = [self._idle.get() for _ in range(self._size)]
        for worker in taken:
            self._idle.put(worker or Worker(self._memory_mb))

    def stop(self) -> None:
        """End all processes that do nothing; those that work end with us."""
        with suppress(queue.Empty):
            while True:
                worker = self._idle.get_nowait()
                if worker is not None:
                    worker.end()

    def compile(self, step: PythonStep, make_provider: MakeProvider) -> Run:
        """Make the function that adds the outputs of a Python extractor to a batch; see `compile_function`."""
        number = next(_NUMBERS)
        title = f"extractor {step.extractor} of featureset {step.featureset}"

        def run(batch: Batch) -> None:
            batch.columns.update(self._call(number, step, batch, make_provider(step, batch.past), title))

        return run

    def _call(self, number: int, step: PythonStep, batch: Batch, lookups: LookupProvider, title: str) -> Columns:
        try:
            idle = self._idle.get(timeout=self._seconds)
        except queue.Empty:
            raise UnavailableError(f"{title}: all {self._size} processes for extractors are busy") from None
        worker: Worker | None = None
        try:
            worker = idle or Worker(self._memory_mb)
            columns = worker.call(number, step, batch, lookups, self._seconds)
        except ExtractorError:
            self._idle.put(worker)
            raise
        except TimeoutError:
            self._replace(worker)
            raise ExtractorError(f"{title} did not end within {self._seconds:g} s; its process was ended") from None
        except MemoryError:
            self._replace(worker)
            raise ExtractorError(
                f"{title} needs more than {self._memory_mb} MB of memory; its process was ended"
            ) from None
        except (EOFError, OSError):
            how = self._replace(worker)
            raise ExtractorError(f"{title} ended its process ({how})") from None
        except BaseException:
            # Half a message may be on its way.
            self._replace(worker)
            raise
        self._idle.put(worker)
        return columns

    def _replace(self, worker: Worker | None) -> str:
        try:
            return "not started" if worker is None else worker.end()
        finally:
            self._idle.put(None)


def serve(pipe: Connection, memory_mb: int | None) -> None:
    """Answer calls until the other end is closed, or memory is short; runs in the process."""
    # Whoever stops the server by Ctrl-C stops the server, which ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    if memory_mb is not None:
        limit_memory(memory_mb)
    functions: dict[int, tuple[PythonStep, Run]] = {}
    lookups = _lookups_through(pipe)
    while True:
        try:
            forget, number, step, columns, rows, at, past = pipe.recv()
        except EOFError:
            return
        if forget:
            functions.clear()
        if step is not None:
            functions[number] = step, compile_function(step, lambda _step, _past: lookups)
        answer = _answer(*functions[number], columns, rows, at, past=past)
        pipe.send(answer)
        if answer[0] == "spent":
            # What was left half done by it is nobody's business any more.
            return


def _end_with_the_server() -> None:
    """End this process when the server has ended, also while a function never does."""
    server = multiprocessing.parent_process()
    if server is not None:
        server.join()
    os._exit(1)


def _answer(
    step: PythonStep, run: Run, columns: dict[str, list[object]], rows: int, at: Instants, *, past: bool
) -> tuple[str, object]:
    batch = Batch(columns, rows, at, past)
    try:
        run(batch)
    except CarawayError as error:
        return ("spent", None) if isinstance(error.__cause__, MemoryError) else ("failed", str(error))
    except MemoryError:
        return "spent", None
    return "done", {name: batch.columns[name] for name in step.kept}


def _lookups_through(pipe: Connection) -> Callable[..., Looked]:
    def look_up(dataset: str, ts: "pd.Series[Any]", keys: pd.DataFrame, fields: Sequence[str]) -> Looked:
        pipe.send(("lookup", (dataset, ts, keys, list(fields))))
        found, reason = pipe.recv()
        if found is None:
            raise InvalidInputError(reason)
        looked: Looked = found
        return looked

    return look_up
