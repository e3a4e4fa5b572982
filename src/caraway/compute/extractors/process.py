"""The program of a process that runs users' functions for queries."""

import gc
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from caraway.compute.extractors.imports import lacking
from caraway.compute.extractors.traced import Expressions, expressions_of
from caraway.compute.query.batch import Batch, Run
from caraway.compute.query.datasets import frames, question
from caraway.compute.query.functions import compile_function
from caraway.compute.query.model import Instants, PythonStep
from caraway.errors import CarawayError, InvalidInputError
from caraway.graph.redaction import redact_output, redacted, remembered
from caraway.graph.runtime import secret_provider
from caraway.graph.wire.messages import encode_expr
from caraway.process.confinement.channel import Channel
from caraway.process.confinement.hints import with_hint
from caraway.process.confinement.requests import received, secrets_through
from caraway.process.confinement.values import packed

Looked = tuple[pd.DataFrame, "pd.Series[bool]"]


def serve(channel: Channel) -> None:
    """Answer calls, and requests to trace extractors or to check functions, until the other end or the memory ends."""
    # The imported modules stay for good. Freezing their objects makes garbage collections, which delay answers,
    # shorter.
    gc.freeze()
    functions: dict[int, tuple[PythonStep, Run]] = {}
    lookups = _lookups_through(channel)
    # `secrets.get` in this thread requests secrets from the platform through the channel. Functions are called in no
    # other thread.
    secret_provider.set(remembered(secrets_through(channel)))
    redact_output()
    while True:
        message = received(channel)
        if isinstance(message, bytes):
            channel.send(packed(lacking(message)))
            continue
        if isinstance(message, PythonStep):
            found = expressions_of(message)
            channel.send(packed(["traced", None if found is None else _expressions(found)]))
            continue
        forget, number, step, columns, rows, at, past = message
        if forget:
            functions.clear()
        if step is not None:
            functions[number] = step, compile_function(step, lambda _step, _past: lookups)
        answer = _answer(*functions[number], columns, rows, at, past=past)
        channel.send(answer)
        if answer == _SPENT:
            # The function used up the memory, and may have left any object in an inconsistent state, so the process
            # ends.
            return


def _expressions(found: Expressions) -> dict[str, bytes]:
    return {name: encode_expr(node).SerializeToString() for name, node in found.items()}


def warm_up() -> None:
    """Run once the parts of pandas that are slow at their first call."""
    series = pd.Series(pd.array([1, None], dtype="Int64"), name="x")
    pd.DataFrame({"x": series + 1, "at": pd.to_datetime([0, 1], unit="us", utc=True)})["x"].astype(object).tolist()


_SPENT = packed(["spent", None])


def _answer(
    step: PythonStep, run: Run, columns: dict[str, list[object]], rows: int, at: Instants, *, past: bool
) -> bytes:
    batch = Batch(columns, rows, at, past)
    try:
        run(batch)
        return packed(["done", [batch.columns[name] for name in step.kept]])
    except CarawayError as error:
        if isinstance(error.__cause__, MemoryError):
            return _SPENT
        return packed(["failed", redacted(with_hint(str(error), error))])
    except MemoryError:
        return _SPENT


def _lookups_through(channel: Channel) -> Callable[..., Looked]:
    def look_up(dataset: str, ts: "pd.Series[Any]", keys: pd.DataFrame, fields: Sequence[str]) -> Looked:
        asked = question(dataset, ts, keys, fields)
        channel.send(packed(["lookup", [asked.dataset, asked.at, asked.keys, asked.fields]]))
        found, reason = received(channel)
        if found is None:
            raise InvalidInputError(reason)
        return frames(found)

    return look_up
