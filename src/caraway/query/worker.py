"""A process that runs users' functions, as the server sees it."""

import asyncio
import multiprocessing
import signal
import socket
import time
from collections.abc import Generator, Mapping
from multiprocessing.process import BaseProcess
from typing import Any

from caraway.errors import CarawayError, ExtractorError
from caraway.graph.runtime import SecretProvider
from caraway.query.batch import Batch
from caraway.query.channel import Channel
from caraway.query.datasets import Found, Lookups, Question
from caraway.query.extractor_process import serve
from caraway.query.model import PythonStep
from caraway.query.traced import Expressions

# Functions that a process keeps. Each commit brings new ones; beyond so many it forgets them all.
MAX_KNOWN = 200
JOIN_S = 1.0
# One that has closed its end is about to end by itself.
ENDING_S = 0.2

Columns = Mapping[str, list[object]]
# Gives what is to be sent, takes what came back, and returns columns in the end.
Talk = Generator[object, Any, Columns]


class Worker:
    """Such a process. It runs one call after the other."""

    def __init__(self, memory_mb: int | None, secrets: SecretProvider) -> None:
        """Start it; its functions may take so much memory, in MiB, and get their secrets from `secrets`."""
        self._secrets = secrets
        ours, theirs = socket.socketpair()
        context = multiprocessing.get_context("forkserver")
        self._channel = Channel(ours)
        self._process: BaseProcess = context.Process(
            target=serve, args=(theirs, memory_mb), daemon=True, name="extractors"
        )
        self._process.start()
        theirs.close()
        self._known: set[int] = set()

    def call(self, number: int, step: PythonStep, batch: Batch, lookups: Lookups, seconds: float) -> Columns:
        """Run the function of a step, known under `number`, and wait for it.

        Raises:
            TimeoutError: It isn't done in time.
            EOFError: The process has ended.
            OSError: The process has ended.
            MemoryError: The function needs more memory than it may take; the process ends.
            ExtractorError: The function failed; the process can be used again.
        """
        deadline = time.monotonic() + seconds
        talk = self._talk(number, step, batch, lookups)
        message = next(talk)
        try:
            while True:
                self._channel.send(message, deadline)
                message = talk.send(self._channel.receive(deadline))
        except StopIteration as done:
            columns: Columns = done.value
            return columns

    async def call_soon(self, number: int, step: PythonStep, batch: Batch, lookups: Lookups, seconds: float) -> Columns:
        """Run the function of a step while the event loop goes on; see `call`."""
        talk = self._talk(number, step, batch, lookups)
        message = next(talk)
        try:
            async with asyncio.timeout(seconds):
                while True:
                    await self._channel.send_soon(message)
                    received = await self._channel.receive_soon()
                    if isinstance(received, tuple) and received[0] == "lookup" and lookups.asks_others:
                        # It takes its time, in which the loop goes on.
                        message = await asyncio.to_thread(talk.send, received)
                    else:
                        message = talk.send(received)
        except StopIteration as done:
            columns: Columns = done.value
            return columns

    def trace(self, step: PythonStep, seconds: float) -> Expressions | None:
        """Find out which expressions an extractor is, None if it is none, and wait for it; raises as `call` does."""
        deadline = time.monotonic() + seconds
        self._channel.send(step, deadline)
        found: Expressions | None = self._channel.receive(deadline)  # type: ignore[assignment] # what the process sends
        return found

    def _talk(self, number: int, step: PythonStep, batch: Batch, lookups: Lookups) -> Talk:
        forget = len(self._known) >= MAX_KNOWN
        if forget:
            self._known.clear()
        columns = {column.name: batch.columns[column.name] for column in step.inputs}
        shipped = None if number in self._known else step
        self._known.add(number)
        kind, what = yield forget, number, shipped, columns, batch.rows, batch.at, batch.past
        while True:
            match kind:
                case "done":
                    done: Columns = what
                    return done
                case "failed":
                    raise ExtractorError(what)
                case "spent":
                    raise MemoryError
                case "secret":
                    kind, what = yield _secret(self._secrets, what)
                case _:
                    kind, what = yield _looked_up(lookups, what)

    def end(self) -> str:
        """End the process, and say how it has ended."""
        self._channel.close()
        self._process.join(ENDING_S)
        self._process.kill()
        self._process.join(JOIN_S)
        code = self._process.exitcode
        if code is None or code >= 0:
            return f"exit code {code}"
        return signal.Signals(-code).name


def _looked_up(lookups: Lookups, question: Question) -> tuple[Found | None, str]:
    try:
        return lookups.answer(question), ""
    except CarawayError as error:
        return None, str(error)


def _secret(secrets: SecretProvider, name: str) -> tuple[str | None, str]:
    try:
        return secrets(name), ""
    except CarawayError as error:
        return None, str(error)
