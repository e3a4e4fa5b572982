"""The id of the request that is being answered: in log lines, in answers, and in what other processes are sent."""

import itertools
import os
import re
import secrets
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

# The name of the header with the id, in requests and in answers.
HEADER = "x-request-id"
# The most characters of an id that a client chooses. The id is written into log lines and sent back, so it may have
# only characters that have no meaning in logs, headers or JSON.
MAX_CHARACTERS = 128
_SANE = re.compile(rf"[A-Za-z0-9._:/+=@-]{{1,{MAX_CHARACTERS}}}")

# An id that the server makes consists of a random number for the process and a count, so that making one takes a
# fraction of a microsecond.
_PROCESS = secrets.token_hex(6)
_NUMBERS = itertools.count(1)


def _draw() -> None:
    global _PROCESS  # noqa: PLW0603 (the number of this process)
    _PROCESS = secrets.token_hex(6)


os.register_at_fork(after_in_child=_draw)

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request under way in this task or thread; empty outside of requests."""


def accepted(given: str | None) -> str:
    """Return the id for a request: the one that its client gave, if it is sane and not too long, else a new one."""
    return given if given is not None and _SANE.fullmatch(given) else f"{_PROCESS}-{next(_NUMBERS):x}"


def add_request_id(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the id of the request to a log line: a processor of structlog."""
    del logger, method
    if request_id := REQUEST_ID.get():
        event.setdefault("request_id", request_id)
    return event
