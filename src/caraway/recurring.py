"""Something that is done again and again: every so often, and sooner when it is woken."""

import logging
import threading
from collections.abc import Callable

from caraway.errors import UnavailableError

LOGGER = logging.getLogger(__name__)


class Recurring:
    """Does one thing again and again in a thread of its own; whatever it raises, it is done again the next time."""

    def __init__(
        self,
        name: str,
        act: Callable[[], object],
        interval_s: float | Callable[[], float],
        *,
        at_once: bool = False,
        wait: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        """Prepare; nothing is done before `start`.

        Args:
            name: Of the thread, and in the log.
            act: What is done. An UnavailableError means that it can't be done now.
            interval_s: How long to pause after each time, in seconds; a function is asked anew before each pause.
            at_once: Whether the first time comes without a pause.
            wait: Waits until an event is set or so many seconds are over.
        """
        self._name = name
        self._act = act
        self._interval_s = interval_s
        self._at_once = at_once
        self._wait = wait
        self._woken = threading.Event()
        self.stopping = threading.Event()
        """Set when it is to end; for `act` to look at if it takes long."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Let it be done now, or once more if it is being done: what it began with may be old."""
        self._woken.set()

    def stop(self, timeout_s: float) -> bool:
        """End; wait for what is under way, but not longer than `timeout_s`. Tell whether it has ended."""
        self.stopping.set()
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        told = ""
        if not self._at_once:
            self._pause()
        while not self.stopping.is_set():
            try:
                self._act()
                told = ""
            except UnavailableError as error:
                # Once, not at each attempt.
                if str(error) != told:
                    LOGGER.warning("%s waits: %s", self._name, error)
                told = str(error)
            except Exception:
                LOGGER.exception("%s failed, and is tried again", self._name)
            self._pause()

    def _pause(self) -> None:
        self._wait(self._woken, self._interval_s() if callable(self._interval_s) else self._interval_s)
        self._woken.clear()
