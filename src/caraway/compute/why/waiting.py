"""The wait for an explanation, which a server computes in a process of its own."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from caraway.errors import RemoteError, UnavailableError

# The default time limit in seconds. The server has to read the history of each dataset that the explained value is
# computed from.
TIMEOUT_S = 300.0
# Seconds between two requests for an explanation that isn't ready yet.
PAUSE_S = 0.5
# The HTTP status of the error if an explanation was accepted and can't be computed.
UNPROCESSABLE = 422


def awaited(answer: Mapping[str, Any], look: Callable[[str], Mapping[str, Any]], timeout_s: float) -> Any:
    """Return the JSON of the explanation of an answer, after it has become ready.

    Args:
        answer: The answer of the server.
        look: Returns a later answer, given the id of the request.
        timeout_s: The time limit in seconds.

    Raises:
        UnavailableError: It takes longer than the limit.
        RemoteError: The feature can't be computed.
    """
    until = time.monotonic() + timeout_s
    while answer["why"] is None:
        if answer["error"] is not None:
            raise RemoteError(f"why: {answer['error']}", status=UNPROCESSABLE)
        if time.monotonic() >= until:
            raise UnavailableError(
                f"why: the explanation {answer['request_id']} isn't ready after {timeout_s:g} s; ask again with a "
                "greater timeout"
            )
        time.sleep(PAUSE_S)
        answer = look(answer["request_id"])
    return answer["why"]
