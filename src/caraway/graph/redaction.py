"""Removal of secrets from the output of users' functions: errors, tracebacks and prints.

A process that runs users' functions remembers the secrets that it has handed out, and removes them from every text that
leaves it. So a function that puts a secret into an exception doesn't reveal it.
"""

import json
import sys
from collections.abc import Callable
from typing import Any, TextIO, cast

HIDDEN = "***"
# Secrets with fewer characters than this aren't removed: such short texts occur by chance everywhere, so their removal
# would make other texts unreadable.
SHORTEST = 4

_handed_out: set[str] = set()


def remembered(provider: Callable[[str], str]) -> Callable[[str], str]:
    """Return a provider of secrets whose values are removed from texts in this process from then on."""

    def get(name: str) -> str:
        value = provider(name)
        _handed_out.add(value)
        return value

    return get


def redacted(text: str) -> str:
    """Return a text without the secrets that were handed out in this process."""
    if not _handed_out:
        return text
    # A secret may be a part of a longer one. So the longer one is removed first; otherwise the rest of it would stay.
    for spelling in sorted({s for value in tuple(_handed_out) for s in _spellings(value)}, key=len, reverse=True):
        text = text.replace(spelling, HIDDEN)
    return text


def redact_output() -> None:
    """Remove secrets from all that this process prints from now on."""
    sys.stdout, sys.stderr = (cast("TextIO", _Redacting(stream)) for stream in (sys.stdout, sys.stderr))


class _Redacting:
    """A stream that hides secrets. A secret that is written in several pieces isn't recognised."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text without secrets."""
        self._stream.write(redacted(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _spellings(value: str) -> set[str]:
    """Return the forms in which a value may be in a text: as it is, as Python and JSON write it, or line by line."""
    every = {value, repr(value)[1:-1], json.dumps(value)[1:-1], *value.splitlines()}
    return {spelling for spelling in every if len(spelling) >= SHORTEST}
