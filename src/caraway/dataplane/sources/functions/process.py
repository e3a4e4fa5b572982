"""The program of a process that runs the functions of preproc and where, until its server goes away."""

from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd

from caraway.compute.rows.calls import call_here
from caraway.errors import InvalidInputError, UnavailableError
from caraway.graph.redaction import redact_output, redacted, remembered
from caraway.graph.runtime import secret_provider
from caraway.process.confinement.channel import Channel
from caraway.process.confinement.requests import received, secrets_through
from caraway.process.confinement.values import packed


def serve(channel: Channel) -> None:
    """Answer requests, each a function with a frame, until the other end is closed."""
    redact_output()
    secret_provider.set(remembered(secrets_through(channel)))
    while True:
        function, frame = received(channel)
        try:
            values, errors = call_here(function, frame)
        except UnavailableError as error:
            channel.send(packed(["unloadable", redacted(str(error))]))
            continue
        channel.send(_answer(values, {position: redacted(message) for position, message in errors.items()}))


def warm_up() -> None:
    """Run once the parts of pandas that are slow at their first call."""
    frame = pd.DataFrame({"number": [1, 2], "text": ["a", None]})
    (frame["number"] + 1).astype(object).tolist()


def _answer(values: list[object], errors: dict[int, str]) -> bytes:
    plain = [_plain(value) for value in values]
    reasons = [list(error) for error in errors.items()]
    try:
        return packed(["done", [plain, reasons]])
    except InvalidInputError as error:
        return packed(["unsendable", str(error)])


def _plain(value: object) -> object:
    """Return a value in a form that can be sent: arrays as lists, objects as dicts of their attributes."""
    match value:
        case np.ndarray():
            return [_plain(item) for item in value.tolist()]
        case list() | tuple():
            return [_plain(item) for item in value]
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
        case date() | Decimal() | np.generic():
            return value
        case _ if type(value).__module__ != "builtins" and hasattr(value, "__dict__"):
            return {name: _plain(item) for name, item in vars(value).items()}
        case _:
            return value
