"""Waiting for effects of other processes."""

import time
from collections.abc import Callable

from tests.timeouts import deadline_in

LIMIT_SECONDS = 20.0


def eventually(condition: Callable[[], bool], limit: float = LIMIT_SECONDS) -> None:
    """Wait until a condition holds, or fail."""
    deadline = deadline_in(limit)
    while not condition():
        assert time.monotonic() < deadline, "it didn't happen in time"
        time.sleep(0.02)
