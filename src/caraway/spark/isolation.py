"""Users' functions in a process of their own, beside Spark's Python worker.

A function may loop for ever, take all memory, or end its process. Where that happens in the worker, the task fails with
it, and nobody knows the row. So the worker passes batches to a child, which it can do without: it waits for so long,
and if no answer comes, it ends the child, halves the batch, and asks a new one, until the rows that are to blame stand
alone.

The child has no rights but to compute (`caraway.confinement`), and nothing that it sends is unpickled.
"""

import pickle
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from caraway.confinement import ConfinedProcess, Confinement
from caraway.confinement.values import unpacked
from caraway.errors import CarawayError, UnavailableError
from caraway.spark.calls import CallBatch
from caraway.spark.secret_port import SecretAddress, provider_of

Answer = TypeVar("Answer")

#: What the child runs.
TARGET = "caraway.spark.function_process:serve"

_SECONDS, _MEMORY = "spark.caraway.function.seconds", "spark.caraway.function.memoryMb"
_CONFINEMENT = "spark.caraway.function.confinement"
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
        memory_mb: Memory beyond what its process has with all modules loaded.
        confinement: What its process may do.
    """

    seconds: float = 60.0
    memory_mb: int = 1024
    confinement: Confinement = field(default_factory=Confinement)


def limits_conf(limits: Limits) -> Mapping[str, str]:
    """Return limits as a session's settings."""
    confinement = msgspec.json.encode(limits.confinement, enc_hook=str).decode()
    return {_SECONDS: str(limits.seconds), _MEMORY: str(limits.memory_mb), _CONFINEMENT: confinement}


def limits_of(session: SparkSession) -> Limits:
    """Return the limits that a session was opened with."""
    default = limits_conf(Limits())
    seconds, memory, text = (session.conf.get(key, default[key]) for key in (_SECONDS, _MEMORY, _CONFINEMENT))
    confinement = _decode_confinement(text or "{}")
    return Limits(seconds=float(seconds or 0), memory_mb=int(memory or 0), confinement=confinement)


def _path(_: type, text: str) -> Path:
    return Path(text)


_decode_confinement = msgspec.json.Decoder(Confinement, dec_hook=_path).decode


class EndedError(Exception):
    """The child gave no answer; the text says why."""


class UselessError(Exception):
    """A function fails in this way for so many rows that its job had better stop."""


class FunctionChild:
    """A process that works on batches, one after the other; it is started when it is needed."""

    def __init__(self, memory_mb: int, confinement: Confinement, target: str = TARGET) -> None:
        """Prepare a child that runs `target`."""
        self._target = target
        self._memory_mb = memory_mb
        self._confinement = confinement
        self._process: ConfinedProcess | None = None
        #: Whether the next request is the first one of a process.
        self.fresh = True

    def ask(self, batch: CallBatch, seconds: float, address: SecretAddress | None = None) -> pa.StructArray:
        """Pass on a batch and wait for the answer; the function gets secrets of `address`.

        Raises:
            EndedError: There was none in time, or the process has ended.
            RuntimeError: The function can't be called, or no process can be started for it.
        """
        process = self._started()
        self.fresh = False
        deadline = time.monotonic() + seconds
        message: object = batch
        try:
            while True:
                process.channel.send(pickle.dumps(message, pickle.HIGHEST_PROTOCOL), deadline)
                answer = unpacked(process.channel.receive(deadline))
                match answer:
                    case ["secret", str(name)] if address is not None:
                        message = _secret(address, name)
                    case _:
                        return self._taken(answer, batch)
        except TimeoutError as error:
            self.end()
            raise EndedError(f"did not end within {seconds:g} s") from error
        except (EOFError, ConnectionError) as error:
            raise EndedError(f"ended its process ({self.end()})") from error

    def _taken(self, answer: object, batch: CallBatch) -> pa.StructArray:
        match answer:
            case ["answer", bytes(content)]:
                return _array(content, batch.type_, len(batch.called))
            case ["memory", None]:
                self.end()
                raise EndedError(f"needs more than {self._memory_mb} MB of memory")
            case ["error", str(text)]:
                raise RuntimeError(text)
            case _:
                raise EOFError("an unreadable answer")

    def end(self) -> str:
        """End the process, if it hasn't ended, and return how it has."""
        process, self._process, self.fresh = self._process, None, True
        return "not started" if process is None else process.end()

    def _started(self) -> ConfinedProcess:
        if self._process is None:
            try:
                self._process = ConfinedProcess(self._target, self._confinement, self._memory_mb)
            except (OSError, CarawayError) as error:
                raise RuntimeError(f"no process for users' functions: {error}") from error
        return self._process


def _secret(address: SecretAddress, name: str) -> tuple[str | None, str, bool]:
    """Return a secret, or why there is none, and whether that is so because nobody answers."""
    try:
        return provider_of(address)(name), "", False
    except CarawayError as error:
        return None, str(error), isinstance(error, UnavailableError)


def _array(content: bytes, type_: pa.StructType, rows: int) -> pa.StructArray:
    """Read an answer, which may be any bytes once a function has got hold of the channel.

    Raises:
        EOFError: It isn't an array of this type and length.
    """
    try:
        with pa.ipc.open_stream(content) as reader:
            array = reader.read_next_batch().column(0)
        # Offsets may lead out of the buffers.
        array.validate(full=True)
    except (pa.ArrowException, ValueError, IndexError, StopIteration, OSError) as error:
        raise EOFError(f"an unreadable answer: {error}") from error
    if array.type != type_ or len(array) != rows:
        raise EOFError("an answer of another function")
    return array


@dataclass(slots=True)
class Halving(Generic[Answer]):
    """Asks for parts of a batch until those are found that give no answer.

    Attributes:
        ask: Asks for the rows from one position to another, within so many seconds.
        fresh: Tells whether the next call is the first one of its process.
        fallback: Makes the answer for one row that there is none for.
        limits: What the function may take.
    """

    ask: Callable[[int, int, float], Answer]
    fresh: Callable[[], bool]
    fallback: Callable[[str], Answer]
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
            return [self.fallback(reason)]
        # What earlier calls have left behind may be to blame.
        return self.answers(low, high, share)

    def _count(self, seconds: float, error: EndedError) -> None:
        self._spent += seconds
        self._ends += 1
        if self._spent > _MOST_LIMITS * self.limits.seconds or self._ends > _MOST_ENDS:
            raise UselessError(
                f"{error}; that happened {self._ends} times in one batch, which took {self._spent:.0f} s"
            ) from error
