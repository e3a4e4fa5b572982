"""What a process for users' functions does."""

import gc
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pandas as pd

from caraway.errors import CarawayError, InvalidInputError, UnknownEntityError
from caraway.graph.redaction import redact_output, redacted, remembered
from caraway.graph.runtime import SecretProvider, secret_provider
from caraway.memory import limit_memory
from caraway.query.batch import Batch, Run
from caraway.query.channel import Channel
from caraway.query.datasets import Found, frames, question
from caraway.query.functions import compile_function
from caraway.query.model import Instants, PythonStep
from caraway.query.traced import expressions_of

Looked = tuple[pd.DataFrame, "pd.Series[bool]"]
Call = tuple[bool, int, PythonStep | None, dict[str, list[object]], int, Instants, bool]


def serve(end: socket.socket, memory_mb: int | None) -> None:
    """Answer calls, and what extractors are, until the other end is closed, or memory is short."""
    # Whoever stops the server by Ctrl-C stops the server, which ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    if memory_mb is not None:
        limit_memory(memory_mb)
    # What was imported stays: no collection has to look through it while somebody waits.
    gc.freeze()
    channel = Channel(end)
    functions: dict[int, tuple[PythonStep, Run]] = {}
    lookups = _lookups_through(channel)
    # Of this thread, which runs nothing else.
    secret_provider.set(remembered(_secrets_through(channel)))
    redact_output()
    while True:
        try:
            message = channel.receive()
        except EOFError:
            return
        if isinstance(message, PythonStep):
            channel.send(expressions_of(message))
            continue
        forget, number, step, columns, rows, at, past = cast("Call", message)
        if forget:
            functions.clear()
        if step is not None:
            functions[number] = step, compile_function(step, lambda _step, _past: lookups)
        answer = _answer(*functions[number], columns, rows, at, past=past)
        channel.send(answer)
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
        return ("spent", None) if isinstance(error.__cause__, MemoryError) else ("failed", redacted(str(error)))
    except MemoryError:
        return "spent", None
    return "done", {name: batch.columns[name] for name in step.kept}


def _lookups_through(channel: Channel) -> Callable[..., Looked]:
    def look_up(dataset: str, ts: "pd.Series[Any]", keys: pd.DataFrame, fields: Sequence[str]) -> Looked:
        channel.send(("lookup", question(dataset, ts, keys, fields)))
        found, reason = cast("tuple[Found | None, str]", channel.receive())
        if found is None:
            raise InvalidInputError(reason)
        return frames(found)

    return look_up


def _secrets_through(channel: Channel) -> SecretProvider:
    def get(name: str) -> str:
        channel.send(("secret", name))
        value, reason = cast("tuple[str | None, str]", channel.receive())
        if value is None:
            raise UnknownEntityError(reason)
        return value

    return get
