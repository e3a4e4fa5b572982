"""Keeping secrets out of what a user's function says: its errors, their tracebacks.

A process that runs users' functions remembers the secrets that it has handed out, and takes them out of every text that
leaves it. So a function that puts a secret into an exception tells it to nobody.
"""

import json
import sys
from collections.abc import Callable
from typing import Any, TextIO, cast

HIDDEN = "***"
# Shorter texts occur by chance everywhere, and protect nothing.
SHORTEST = 4

_handed_out: set[str] = set()


def remembered(provider: Callable[[str], str]) -> Callable[[str], str]:
    """Return a provider of secrets whose values are from then on taken out of texts in this process."""

    def get(name: str) -> str:
        value = provider(name)
        _handed_out.add(value)
        return value

    return get


def redacted(text: str) -> str:
    """Return a text without the secrets that were handed out in this process."""
    if not _handed_out:
        return text
    # The longest first: a secret may be a part of another one.
    for spelling in sorted({s for value in tuple(_handed_out) for s in _spellings(value)}, key=len, reverse=True):
        text = text.replace(spelling, HIDDEN)
    return text


def redact_output() -> None:
    """Take secrets out of all that this process prints from now on."""
    sys.stdout, sys.stderr = (cast("TextIO", _Redacting(stream)) for stream in (sys.stdout, sys.stderr))


class _Redacting:
    """A stream that hides secrets. One that is written in pieces isn't recognised."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text without secrets."""
        self._stream.write(redacted(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever a stream has)
        return getattr(self._stream, name)


def _spellings(value: str) -> set[str]:
    """Return how a value may stand in a text: as it is, as Python and JSON write it, or cut into its lines."""
    every = {value, repr(value)[1:-1], json.dumps(value)[1:-1], *value.splitlines()}
    return {spelling for spelling in every if len(spelling) >= SHORTEST}
