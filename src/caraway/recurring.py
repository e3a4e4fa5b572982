"""Recurring work: an action that is repeated at intervals, and sooner when it is woken."""

import logging
import threading
from collections.abc import Callable

from caraway.errors import UnavailableError

LOGGER = logging.getLogger(__name__)


class Recurring:
    """Repeats an action in a thread of its own; an error of the action doesn't end the repetition."""

    def __init__(
        self,
        name: str,
        act: Callable[[], object],
        interval_s: float | Callable[[], float],
        *,
        at_once: bool = False,
        wait: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        """Prepare the repetition; the action isn't called before `start`.

        Args:
            name: The name of the thread, which also appears in the log.
            act: The action. An UnavailableError means that it can't be done now.
            interval_s: The pause after each call, in seconds; a function is called anew before each pause.
            at_once: True: the first call comes without a pause before it.
            wait: Waits until an event is set or so many seconds are over.
        """
        self._name = name
        self._act = act
        self._interval_s = interval_s
        self._at_once = at_once
        self._wait = wait
        self._woken = threading.Event()
        self.stopping = threading.Event()
        """Set by `stop`, so that an action that takes long can end early."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Have the action called now, and once more if it is running: that call may have begun with old data."""
        self._woken.set()

    def stop(self, timeout_s: float) -> bool:
        """Stop, wait at most `timeout_s` for a running call, and return whether it has ended."""
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
                # The same outage is logged once and not at each attempt.
                if str(error) != told:
                    LOGGER.warning("%s waits: %s", self._name, error)
                told = str(error)
            except Exception:
                LOGGER.exception("%s failed, and is tried again", self._name)
            self._pause()

    def _pause(self) -> None:
        self._wait(self._woken, self._interval_s() if callable(self._interval_s) else self._interval_s)
        self._woken.clear()
