"""Users' functions in a process of their own, beside Spark's Python worker.

A function may loop for ever, take all memory, or end its process. Where that happens in the worker, the task fails with
it, and nobody knows the row. So the worker passes batches to a child, which it can do without: it waits for so long,
and if no answer comes, it ends the child, halves the batch, and asks a new one, until the rows that are to blame stand
alone.

The child is forked, so that it has all modules already; it ends with the worker.
"""

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar

from pyspark.sql import SparkSession

from caraway.graph.redaction import redact_output, redacted
from caraway.memory import limit_memory

Request = TypeVar("Request")
Answer = TypeVar("Answer")

_SECONDS, _MEMORY = "spark.caraway.function.seconds", "spark.caraway.function.memoryMb"
# Linux: the signal that a process gets when its parent ends (linux/prctl.h).
_PR_SET_PDEATHSIG = 1
# Parts of a batch get less time: a bad row among 10,000 is found after 14 halvings, the last ten with this share of it.
_LEAST_SHARE = 0.1
# What all failures of a batch together may take, in time limits, and how many there may be. A function that always
# fails would occupy its job for hours otherwise; the job says so instead.
_MOST_LIMITS = 5.0
_MOST_ENDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a user's function may take.

    Attributes:
        seconds: Time for one call with a batch.
        memory_mb: Memory beyond what the worker has with all modules loaded.
    """

    seconds: float = 60.0
    memory_mb: int = 1024


def limits_conf(limits: Limits) -> Mapping[str, str]:
    """Return limits as a session's settings."""
    return {_SECONDS: str(limits.seconds), _MEMORY: str(limits.memory_mb)}


def limits_of(session: SparkSession) -> Limits:
    """Return the limits that a session was opened with."""
    default = limits_conf(Limits())
    seconds, memory = (session.conf.get(key, default[key]) for key in (_SECONDS, _MEMORY))
    return Limits(seconds=float(seconds or 0), memory_mb=int(memory or 0))


class ExhaustedError(Exception):
    """There is no more memory: raised in the child, which can't be trusted any more."""


class EndedError(Exception):
    """The child gave no answer; the text says why."""


class UselessError(Exception):
    """A function fails in this way for so many rows that its job had better stop."""


class Child(Generic[Request, Answer]):
    """A process that works on requests, one after the other; it is started when it is needed."""

    def __init__(self, work: Callable[[Request], Answer], memory_mb: int) -> None:
        """Prepare a child whose answers are those of `work`, which raises `ExhaustedError` where memory is short."""
        self._work = work
        self._memory_mb = memory_mb
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        #: Whether the next request is the first one of a process.
        self.fresh = True

    def ask(self, request: Request, seconds: float) -> Answer:
        """Pass on a request and wait for the answer.

        Raises:
            EndedError: There was none in time, or the process has ended.
            RuntimeError: What `work` raised.
        """
        pipe = self._started()
        self.fresh = False
        try:
            pipe.send(request)
            if not pipe.poll(seconds):
                self.end()
                raise EndedError(f"did not end within {seconds:g} s")
            kind, answer = pipe.recv()
        except (EOFError, ConnectionError) as error:
            raise EndedError(f"ended its process ({self.end()})") from error
        match kind:
            case "answer":
                return answer  # type: ignore[no-any-return]
            case "memory":
                self.end()
                raise EndedError(f"needs more than {self._memory_mb} MB of memory")
            case _:
                raise RuntimeError(answer)

    def end(self) -> str:
        """End the process, if it hasn't ended, and say how it has."""
        process, pipe, self._process, self._pipe, self.fresh = self._process, self._pipe, None, None, True
        if process is None or pipe is None:
            return "not started"
        pipe.close()
        # One that has closed its pipe is about to end.
        process.join(0.2)
        process.kill()
        process.join()
        code = process.exitcode or 0
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name

    def _started(self) -> Connection:
        if self._pipe is None:
            context = get_context("fork")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(
                target=_serve, args=(self._work, theirs, self._pipe, self._memory_mb, os.getpid()), daemon=True
            )
            self._process.start()
            theirs.close()
        return self._pipe


@dataclass(slots=True)
class Halving(Generic[Answer]):
    """Asks for parts of a batch until those are found that give no answer.

    Attributes:
        ask: Asks for the rows from one position to another, within so many seconds.
        fresh: Tells whether the next call is the first one of its process.
        lost: Makes the answer for one row that there is none for.
        limits: What the function may take.
    """

    ask: Callable[[int, int, float], Answer]
    fresh: Callable[[], bool]
    lost: Callable[[str], Answer]
    limits: Limits
    _spent: float = field(default=0.0, init=False)
    _ends: int = field(default=0, init=False)

    def answers(self, low: int, high: int, share: float = 1.0) -> list[Answer]:
        """Return answers for all rows from `low` to `high`, in their order.

        Raises:
            UselessError: There were too many failures.
        """
        began, fresh, seconds = time.monotonic(), self.fresh(), share * self.limits.seconds
        try:
            return [self.ask(low, high, seconds)]
        except EndedError as error:
            # That it takes time to start a process anew is not the function's fault.
            self._count(min(time.monotonic() - began, seconds), error)
            reason = str(error)
        smaller = max(share / 2, _LEAST_SHARE)
        if high - low > 1:
            middle = (low + high) // 2
            return [*self.answers(low, middle, smaller), *self.answers(middle, high, smaller)]
        if fresh:
            return [self.lost(reason)]
        # What earlier calls have left behind may be to blame.
        return self.answers(low, high, share)

    def _count(self, seconds: float, error: EndedError) -> None:
        self._spent += seconds
        self._ends += 1
        if self._spent > _MOST_LIMITS * self.limits.seconds or self._ends > _MOST_ENDS:
            raise UselessError(
                f"{error}; that happened {self._ends} times in one batch, which took {self._spent:.0f} s"
            ) from error


def _serve(
    work: Callable[[Request], Answer], pipe: Connection, theirs: Connection, memory_mb: int, parent: int
) -> None:
    """Answer requests until the worker goes away; runs in the child."""
    theirs.close()
    # A worker is asked to end by a signal that must not be caught here.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
        limit_memory(memory_mb)
    redact_output()
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(("answer", work(request)))
        except (ExhaustedError, MemoryError):
            pipe.send(("memory", None))
            return
        except Exception:  # noqa: BLE001 (whatever it is, it is told where somebody reads it)
            pipe.send(("error", redacted(traceback.format_exc())))
