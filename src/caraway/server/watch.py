"""Watches over parts that the server depends on: each repeats a check in a thread, and keeps its last result."""

import time
from collections.abc import Callable

from caraway.recurring import Recurring

# Time without a result after which a part counts as away; a single check may be slow.
TIMEOUT_S = 5.0
# The first pause after a failure, and the longest: a part that comes back is noticed soon.
RETRY_S = (0.1, 2.0)


class Watch(Recurring):
    """Runs `check` every `interval_s`, or sooner when it is woken; after failures soon, and then ever more slowly."""

    def __init__(
        self,
        name: str,
        check: Callable[[], None],
        interval_s: float | Callable[[], float],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; `check` raises if the part doesn't work.

        An interval that is a function is called after each check.
        """
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
