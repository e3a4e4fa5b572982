"""Watches over parts that the server depends on: each repeats a check in a thread, and keeps its last result."""

import time
from collections.abc import Callable

from caraway.process.recurring import Recurring

# A part counts as away if its last successful check ended longer ago than the watch's interval plus these seconds,
# since a check that runs now may take that long.
TIMEOUT_S = 5.0
# The first pause after a failed check and the longest one, in seconds. Both are short, so that the server soon notices
# that a part is back.
RETRY_S = (0.1, 2.0)


class Watch(Recurring):
    """Runs `check` every `interval_s`, or at once when it is woken; after a failure sooner, with ever longer pauses."""

    def __init__(
        self,
        name: str,
        check: Callable[[], None],
        interval_s: float | Callable[[], float],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; `check` raises if the part doesn't work. `interval_s` may be a function, called after each check."""
        super().__init__(f"watch-{name}", self._look, interval_s, retry_s=RETRY_S, at_once=True)
        self._clock = clock
        self._check = check
        self._succeeded_at: float | None = None

    def problem(self) -> str | None:
        """Return the problem that the last check found, None if it found none."""
        if self.failure or self._succeeded_at is None:
            return self.failure or "has not been reached yet"
        silent_for = self._clock() - self._succeeded_at
        return f"has not answered for {silent_for:.0f} s" if silent_for > TIMEOUT_S + self._interval_s() else None

    def _look(self) -> None:
        self._check()
        self._succeeded_at = self._clock()
