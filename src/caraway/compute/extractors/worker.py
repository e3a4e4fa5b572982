"""The server's side of a process that runs users' functions."""

import asyncio
import time
from collections.abc import Generator, Mapping
from typing import Any

from google.protobuf.message import DecodeError

from caraway.compute.extractors.traced import Expressions
from caraway.compute.query.answers import Check, holds
from caraway.compute.query.batch import Batch
from caraway.compute.query.datasets import DatasetLookups, FoundRows, Question
from caraway.compute.query.model import PythonStep
from caraway.errors import CarawayError, ExtractorError
from caraway.graph.pb.caraway.v1 import expressions_pb2 as pb
from caraway.graph.wire.messages import decode_expr
from caraway.process.confinement.policy import Confinement, Report
from caraway.process.confinement.process import ConfinedProcess
from caraway.process.confinement.requests import pickled, secret_answer
from caraway.process.confinement.values import unpacked
from caraway.process.secrets.provider import SecretProvider

# A process keeps at most this many functions loaded, since each kind of query brings new ones. At this number the
# process drops all of them, and each function is sent again with its next call.
MAX_KNOWN = 200
# A message with more bytes is parsed in a thread, so that the event loop isn't blocked meanwhile. Parsing this many
# bytes takes a millisecond.
LARGE_BYTES = 1 << 16
# The function that the process runs.
TARGET = "caraway.compute.extractors.process:serve"

Columns = Mapping[str, list[object]]
# The names of the columns that a function returns, with the checks of their types.
Checks = list[tuple[str, Check]]
# A call as a generator: it yields messages to send, receives the answers by `send`, and returns columns in the end.
Talk = Generator[object, Any, Columns]


class FunctionWorker:
    """A process that runs users' functions, one call after the other.

    Attributes:
        commit: The commit whose functions the process runs; None before its first call.
        used_at: The time of the monotonic clock at which its last call ended; 0 before that.
    """

    def __init__(self, memory_mb: int | None, secrets: SecretProvider, confinement: Confinement) -> None:
        """Start the process; its functions may use `memory_mb` MiB of memory, and get their secrets from `secrets`.

        Raises:
            UnconfinedError: The confinement is required, and this system lacks a part of it.
            OSError: The process can't be started.
        """
        self.commit: str | None = None
        self.used_at = 0.0
        self._secrets = secrets
        self._process = ConfinedProcess(TARGET, confinement, memory_mb)
        self._channel = self._process.channel
        # The functions that the process has loaded, by number, with the checks of the types of their results.
        self._known: dict[int, Checks] = {}

    @property
    def report(self) -> Report:
        """Return the confinement that is in force in the process."""
        return self._process.report

    def call(self, number: int, step: PythonStep, batch: Batch, lookups: DatasetLookups, seconds: float) -> Columns:
        """Run the function of a step, which the process knows by `number`, and wait for it.

        Raises:
            TimeoutError: The function takes too long.
            EOFError: The process has ended, or sent an unreadable message.
            OSError: The process has ended.
            MemoryError: The function needs more memory than it may use; the process ends.
            ExtractorError: The function failed; the process can be used again.
        """
        deadline = time.monotonic() + seconds
        talk = self._talk(number, step, batch, lookups)
        message = next(talk)
        try:
            while True:
                self._channel.send(pickled(message), deadline)
                message = talk.send(_message(self._channel.receive(deadline)))
        except StopIteration as done:
            columns: Columns = done.value
            return columns

    async def call_async(
        self, number: int, step: PythonStep, batch: Batch, lookups: DatasetLookups, seconds: float
    ) -> Columns:
        """Run the function of a step without blocking the event loop; see `call`."""
        talk = self._talk(number, step, batch, lookups)
        message = next(talk)
        try:
            async with asyncio.timeout(seconds):
                while True:
                    await self._channel.send_async(pickled(message))
                    content = await self._channel.receive_async()
                    large = len(content) > LARGE_BYTES
                    received = await asyncio.to_thread(_message, content) if large else _message(content)
                    if received[0] == "lookup" and lookups.asks_others:
                        # A lookup that asks other servers may be slow, so it runs in a thread and doesn't block the
                        # event loop.
                        message = await asyncio.to_thread(talk.send, received)
                    else:
                        message = talk.send(received)
        except StopIteration as done:
            columns: Columns = done.value
            return columns

    def trace(self, step: PythonStep, seconds: float) -> Expressions | None:
        """Return the expressions to which an extractor is equal, None if there are none; raises as `call` does."""
        deadline = time.monotonic() + seconds
        self._channel.send(pickled(step), deadline)
        _, found = _message(self._channel.receive(deadline))
        if found is None:
            return None
        try:
            return {name: decode_expr(pb.Expr.FromString(content)) for name, content in found.items()}
        except (DecodeError, CarawayError, AttributeError, TypeError, ValueError, LookupError) as error:
            raise EOFError(f"an unreadable expression: {error}") from error

    def _talk(self, number: int, step: PythonStep, batch: Batch, lookups: DatasetLookups) -> Talk:
        forget = len(self._known) >= MAX_KNOWN
        if forget:
            self._known.clear()
        columns = {column.name: batch.columns[column.name] for column in step.inputs}
        shipped = None if number in self._known else step
        checks = self._known[number] if shipped is None else self._known.setdefault(number, _checks(step))
        kind, what = yield forget, number, shipped, columns, batch.rows, batch.at, batch.past
        while True:
            match kind:
                case "done":
                    return _columns(checks, what, batch.rows)
                case "failed":
                    raise ExtractorError(str(what))
                case "spent":
                    raise MemoryError
                case "secret":
                    kind, what = yield secret_answer(self._secrets, what)
                case "lookup":
                    kind, what = yield _looked_up(lookups, what)
                case _:
                    raise EOFError(f"an unknown message: {kind!r:.100}")

    def end(self) -> str:
        """End the process, and return how it ended."""
        return self._process.end()


def _message(content: bytes) -> tuple[str, Any]:
    """Parse a message of the process, which may be any bytes, since a function can write to the channel.

    Raises `EOFError` if the bytes aren't a message.
    """
    message = unpacked(content)
    if type(message) is not list or len(message) != 2 or type(message[0]) is not str:
        raise EOFError("an unreadable message")
    return message[0], message[1]


def _checks(step: PythonStep) -> Checks:
    types = dict(step.outputs)
    return [(name, holds(types[name])) for name in step.kept]


def _columns(checks: Checks, what: object, rows: int) -> Columns:
    """Return the columns of an answer, after checking the types of their values.

    Raises `EOFError` if a value isn't of its type, so a function has taken the process over.
    """
    if not isinstance(what, list) or len(what) != len(checks):
        raise EOFError("columns of another function")
    columns: dict[str, list[object]] = {}
    for (name, check), column in zip(checks, what, strict=True):
        if type(column) is not list or len(column) != rows or not check(column):
            raise EOFError(f"a column {name} that isn't of its type")
        columns[name] = column
    return columns


def _looked_up(lookups: DatasetLookups, what: object) -> tuple[FoundRows | None, str]:
    match what:
        case [str(dataset), list() | None as at, dict() as keys, list() as fields]:
            question = Question(dataset, at, keys, tuple(fields))
        case _:
            raise EOFError("an unreadable lookup")
    if not all(type(value) is int for value in at or ()) or not all(isinstance(keys[name], list) for name in keys):
        raise EOFError("an unreadable lookup")
    try:
        return lookups.answer(question), ""
    except CarawayError as error:
        return None, str(error)
