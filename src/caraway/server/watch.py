"""Watching what the server depends on: a check that runs again and again in a thread, and what it last said."""

import threading
import time
from collections.abc import Callable

import structlog

from caraway.errors import CarawayError

LOG = structlog.get_logger(__name__)

# A check may take its time once; a part that gave no sign of life for so long is away.
PATIENCE_S = 5.0
LONGEST_PAUSE_S = 2.0


class Watch:
    """Runs `check` every `interval_s`; after a failure sooner, and ever more slowly."""

    def __init__(
        self,
        name: str,
        check: Callable[[], None],
        interval_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; `check` raises when the part doesn't work."""
        self._clock = clock
        self._name = name
        self._check = check
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._succeeded_at: float | None = None
        self._failure = "has not been reached yet"
        self._thread = threading.Thread(target=self._run, name=f"watch-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End; wait for a check that is under way, but not longer than `timeout_s`."""
        self._stopping.set()
        self._thread.join(timeout_s)

    def problem(self) -> str | None:
        """Tell what is wrong, None if nothing is."""
        if self._failure or self._succeeded_at is None:
            return self._failure
        silent_for = self._clock() - self._succeeded_at
        return f"has not answered for {silent_for:.0f} s" if silent_for > PATIENCE_S + self._interval_s else None

    def _run(self) -> None:
        pause = 0.1
        while not self._stopping.is_set():
            try:
                self._check()
            except Exception as error:  # noqa: BLE001 (whatever it is, the watch goes on)
                # Once per outage, not at each attempt.
                if not self._failure or self._succeeded_at is None:
                    LOG.warning("a part doesn't answer", part=self._name, reason=str(error), error=type(error).__name__)
                self._failure = str(error) if isinstance(error, CarawayError) else f"{type(error).__name__}: {error}"
                self._stopping.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            else:
                if self._failure:
                    LOG.info("a part answers", part=self._name)
                self._failure = ""
                self._succeeded_at = self._clock()
                pause = 0.1
                self._stopping.wait(self._interval_s)
