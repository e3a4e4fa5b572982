"""Watches over parts that the server depends on: each repeats a check in a thread, and keeps its last result."""

import time
from collections.abc import Callable

import structlog

from caraway.errors import CarawayError
from caraway.recurring import Recurring

LOG = structlog.get_logger(__name__)

# Time without a result after which a part counts as away; a single check may be slow.
TIMEOUT_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0


class Watch:
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
        self._clock = clock
        self._name = name
        self._check = check
        self._interval_s = interval_s if callable(interval_s) else lambda: interval_s
        self._succeeded_at: float | None = None
        self._failure = "has not been reached yet"
        self._failures = 0
        self._recurring = Recurring(f"watch-{name}", self._look, self._pause_s, at_once=True)

    def start(self) -> None:
        """Start the thread."""
        self._recurring.start()

    def wake(self) -> None:
        """Run the check now, because something may have changed."""
        self._recurring.wake()

    def stop(self, timeout_s: float) -> None:
        """Stop; wait at most `timeout_s` for a check that is under way."""
        self._recurring.stop(timeout_s)

    def problem(self) -> str | None:
        """Return the problem that the last check found, None if it found none."""
        if self._failure or self._succeeded_at is None:
            return self._failure
        silent_for = self._clock() - self._succeeded_at
        return f"has not answered for {silent_for:.0f} s" if silent_for > TIMEOUT_S + self._interval_s() else None

    def _look(self) -> None:
        try:
            self._check()
        except Exception as error:  # noqa: BLE001 (whatever it is, the watch goes on)
            # A failure is logged once per outage, not at each attempt.
            if not self._failure or self._succeeded_at is None:
                LOG.warning("a part doesn't answer", part=self._name, reason=str(error), error=type(error).__name__)
            self._failure = str(error) if isinstance(error, CarawayError) else f"{type(error).__name__}: {error}"
            self._failures += 1
        else:
            if self._failure:
                LOG.info("a part answers", part=self._name)
            self._failure, self._failures = "", 0
            self._succeeded_at = self._clock()

    def _pause_s(self) -> float:
        if not self._failures:
            return self._interval_s()
        return min(FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 10), LONGEST_PAUSE_S)
