"""Users' functions run in a process of their own, beside Spark's Python worker.

A function may loop for ever, take all memory, or end its process. In the worker itself this would fail the task, and
nobody would know for which row. So the worker passes batches to a child process, with a time limit. If no answer comes
in time, it ends the child, halves the batch and sends the halves to a new child, until each failing row stands alone.

The child may only compute (`caraway.process.confinement`), and nothing that it sends is unpickled.
"""

import atexit
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from caraway.dataplane.streams.functions.calls import CallBatch, struct_array, unpacked_call
from caraway.errors import CarawayError
from caraway.process.arrow_messages import is_compressed
from caraway.process.confinement.policy import Confinement
from caraway.process.confinement.requests import Answer, EndedError, RestartedProcess
from caraway.process.confinement.values import unpacked_flat
from caraway.process.secrets.port import SecretAddress, provider_of

#: The function that the child runs.
TARGET = "caraway.dataplane.streams.functions.process:serve"

_SECONDS, _MEMORY = "spark.caraway.function.seconds", "spark.caraway.function.memoryMb"
_CONFINEMENT = "spark.caraway.function.confinement"
# A half of a batch gets half of the batch's time limit, but no less than this share of `Limits.seconds`. A bad row
# among 10,000 is found after 14 halvings, the last eleven with this share.
_LEAST_SHARE = 0.1
# In a batch at most `_MOST_ENDS` calls may hang or end their process, and these calls may take at most `_MOST_LIMITS`
# times `Limits.seconds` in total. Beyond that the job fails with a message, because a function that always hangs or
# exits would occupy the job for hours.
_MOST_LIMITS = 5.0
_MOST_ENDS = 100
# A worker has at most this many child processes, each for one job. Spark gives a worker tasks of all jobs, so with
# fewer children the worker would start a new one for most tasks, which takes some 30 ms.
_MOST_CHILDREN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a user's function.

    Attributes:
        seconds: The most seconds that one call with a batch may take.
        memory_mb: The most MiB that its process may use beyond what it uses once all modules are loaded.
        confinement: The rights of its process.
    """

    seconds: float = 60.0
    memory_mb: int = 1024
    confinement: Confinement = field(default_factory=Confinement)


_decode_confinement = msgspec.json.Decoder(Confinement, dec_hook=lambda _, path: Path(path)).decode


def limits_conf(limits: Limits) -> Mapping[str, str]:
    """Return the limits as settings of a session."""
    confinement = msgspec.json.encode(limits.confinement, enc_hook=str).decode()
    return {_SECONDS: str(limits.seconds), _MEMORY: str(limits.memory_mb), _CONFINEMENT: confinement}


def limits_of(session: SparkSession) -> Limits:
    """Return the limits that a session was opened with."""
    default = limits_conf(Limits())
    seconds, memory, text = (session.conf.get(key, default[key]) for key in (_SECONDS, _MEMORY, _CONFINEMENT))
    confinement = _decode_confinement(text or "{}")
    return Limits(seconds=float(seconds or 0), memory_mb=int(memory or 0), confinement=confinement)


class UselessError(Exception):
    """A function hangs or exits for more rows than a job bears, so the job stops."""


class FunctionChild(RestartedProcess):
    """A process that works on batches one after the other."""

    def __init__(self, memory_mb: int, confinement: Confinement, target: str = TARGET) -> None:
        """Prepare a child that runs `target`."""
        super().__init__(target, confinement, memory_mb)
        self._memory_mb = memory_mb

    def call(self, batch: CallBatch, seconds: float, address: SecretAddress | None = None) -> pa.StructArray:
        """Send a batch and wait for the answer; the function gets its secrets from `address`.

        Raises:
            EndedError: There was no answer in time, or the process has ended.
            RuntimeError: The function can't be called, or no process can be started for it.
        """

        def read(answer: object) -> pa.StructArray:
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

        try:
            return self.ask(batch, seconds, None if address is None else provider_of(address), read, unpacked_flat)
        except CarawayError as error:
            raise RuntimeError(str(error)) from error


def _array(content: bytes, type_: pa.StructType, rows: int) -> pa.StructArray:
    """Parse an answer, which may be any bytes, since a function can write to the channel.

    Only the schema and one record batch are read, whose buffers are those of the answer: compressed ones, or a stream
    of many dictionaries, could take any memory and time in this process.

    Raises `EOFError` if the answer isn't an array of this type and length.
    """
    try:
        messages = pa.ipc.MessageReader.open_stream(content)
        schema, batch = pa.ipc.read_schema(messages.read_next_message()), messages.read_next_message()
        if [field.type for field in schema] != [type_] or batch.type != "record batch" or is_compressed(batch):
            raise EOFError("an answer of another kind")
        array = pa.ipc.read_record_batch(batch, schema).column(0)
        # Without a full check, offsets in the answer could point outside of its buffers.
        array.validate(full=True)
    except (pa.ArrowException, ValueError, IndexError, StopIteration, OSError) as error:
        raise EOFError(f"an unreadable answer: {error}") from error
    if len(array) != rows:
        raise EOFError("an answer of another function")
    return array


@dataclass(slots=True)
class Halving(Generic[Answer]):
    """Requests parts of a batch until the rows without an answer are found.

    Attributes:
        ask: Requests the rows from one position to another, within the given number of seconds.
        fresh: Returns whether the next call is the first one of its process.
        fallback: Returns the answer for a row that has none, made from the reason.
        limits: The limits of the function.
    """

    ask: Callable[[int, int, float], Answer]
    fresh: Callable[[], bool]
    fallback: Callable[[str], Answer]
    limits: Limits
    _spent: float = field(default=0.0, init=False)
    _ends: int = field(default=0, init=False)

    def answers(self, low: int, high: int, share: float = 1.0) -> list[Answer]:
        """Return the answers for all rows from `low` to `high`, in their order.

        Raises `UselessError` if there were too many failures.
        """
        began, fresh, seconds = time.monotonic(), self.fresh(), share * self.limits.seconds
        try:
            return [self.ask(low, high, seconds)]
        except EndedError as error:
            # The time to start a new process doesn't count, since the function isn't to blame for it.
            self._count(min(time.monotonic() - began, seconds), error)
            reason = str(error)
        smaller = max(share / 2, _LEAST_SHARE)
        if high - low > 1:
            middle = (low + high) // 2
            return [*self.answers(low, middle, smaller), *self.answers(middle, high, smaller)]
        if fresh:
            return [self.fallback(reason)]
        # The process had served earlier calls, which may have caused this failure. So a new process tries the row
        # again.
        return self.answers(low, high, share)

    def _count(self, seconds: float, error: EndedError) -> None:
        self._spent += seconds
        self._ends += 1
        if self._spent > _MOST_LIMITS * self.limits.seconds or self._ends > _MOST_ENDS:
            raise UselessError(
                f"{error}; that happened {self._ends} times in one batch, which took {self._spent:.0f} s"
            ) from error


def run_apart(
    packed: bytes,
    type_: pa.StructType,
    called: pa.Array,
    columns: Sequence[pa.Array],
    limits: Limits,
    *,
    job: str,
    address: SecretAddress | None = None,
) -> pa.StructArray:
    """Run `calls.run` in a process of its own, so that this process survives whatever the function does.

    That process runs functions of this job only. The function gets its secrets from `address` through this process.

    Raises:
        RuntimeError: The function can't be run at all, or hangs or exits for too many rows.
    """
    child = _child(limits, job)
    batch = CallBatch(packed, type_, called, tuple(columns), has_secrets=address is not None)

    def fallback(reason: str) -> pa.StructArray:
        return struct_array([{"message": f"{_title(packed)} {reason}", "traceback": None}], type_)

    halving = Halving(
        ask=lambda low, high, seconds: child.call(batch.part(low, high), seconds, address),
        fresh=lambda: child.fresh,
        fallback=fallback,
        limits=limits,
    )
    try:
        parts = halving.answers(0, len(called))
    except UselessError as error:
        raise RuntimeError(f"{_title(packed)} {error}") from error
    whole = pa.concat_arrays(parts)
    assert isinstance(whole, pa.StructArray)  # noqa: S101 (that is what its parts are)
    return whole


def _title(packed: bytes) -> str:
    return unpacked_call(packed).title


# The child processes of this worker, by limits and job, in the order of their last use.
_children: dict[tuple[Limits, str], FunctionChild] = {}


def _child(limits: Limits, job: str) -> FunctionChild:
    """Return the child process of this worker for a job; one is enough, because a worker runs one task at a time."""
    child = _children.pop((limits, job), None) or FunctionChild(limits.memory_mb, limits.confinement)
    _children[limits, job] = child
    if len(_children) > _MOST_CHILDREN:
        _children.pop(next(iter(_children))).end()
    return child


@atexit.register
def _end_children() -> None:
    while _children:
        _children.popitem()[1].end()
