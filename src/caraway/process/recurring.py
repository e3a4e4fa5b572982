"""Recurring work: an action that is repeated at intervals, and sooner when it is woken."""

import logging
import threading
from collections.abc import Callable

from caraway.errors import CarawayError
from caraway.process.thread_names import show_name

LOGGER = logging.getLogger(__name__)


class Recurring:
    """Repeats an action in a thread of its own; an error of the action doesn't end the repetition.

    Attributes:
        failure: The error of the last call as text, "" if there was none.
    """

    def __init__(
        self,
        name: str,
        act: Callable[[], object],
        interval_s: float | Callable[[], float],
        *,
        retry_s: tuple[float, float] | None = None,
        at_once: bool = False,
        finish: Callable[[], object] = lambda: None,
        wait: Callable[[threading.Event, float], object] = threading.Event.wait,
        interrupt: Callable[[threading.Thread], object] | None = None,
    ) -> None:
        """Prepare the repetition; the action isn't called before `start`.

        Args:
            name: The name of the thread, which also appears in the log.
            act: The action. A CarawayError means that it can't be done now. An error that comes again is not
                logged again.
            interval_s: The pause after each call, in seconds; a function is called anew before each pause.
            retry_s: The pause after a first error, which doubles with each further one, and the longest such pause;
                None: the pause is that after a success.
            at_once: True: the first call comes at once; otherwise after a pause.
            finish: Called once in the thread, after `stop` has ended the repetition.
            wait: Waits until the event that it is given is set, or the given number of seconds is over.
            interrupt: Called by `stop` with the thread if a call hasn't ended in time, to end what it waits for.
        """
        self._name = name
        self._act = act
        self._interval_s = interval_s if callable(interval_s) else lambda: interval_s
        self._retry_s = retry_s
        self._at_once = at_once
        self._finish = finish
        self._wait = wait
        self._interrupt = interrupt
        self.failure = ""
        self._failures = 0
        self._woken = threading.Event()
        self.stopping = threading.Event()
        """Set by `stop`, so that an action that takes long can end early."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, unless that was done."""
        if self._thread.ident is None:
            self._thread.start()

    def wake(self) -> None:
        """Start a call of the action now; if one is running, right after it, since it may have begun with old data."""
        self._woken.set()

    def stop(self, timeout_s: float | None) -> bool:
        """Stop, wait at most `timeout_s` (None: as long as it takes) for a running call; return whether it has ended.

        The action itself may end its repetition by `stop(0)`.
        """
        self.stopping.set()
        self._woken.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
            if self._interrupt is not None and self._thread.is_alive():
                self._interrupt(self._thread)
                self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        show_name()
        if not self._at_once:
            self._pause()
        while not self.stopping.is_set():
            self._call(self._act)
            self._pause()
        self._call(self._finish)

    def _call(self, act: Callable[[], object]) -> None:
        """Call a function, and log an error of it unless the call before failed with the same error."""
        failure = ""
        try:
            act()
        except CarawayError as error:
            failure = str(error)
            if failure != self.failure:
                LOGGER.warning("%s waits: %s", self._name, error)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            if failure != self.failure:
                LOGGER.exception("%s failed, and is tried again", self._name)
        else:
            if self.failure:
                LOGGER.info("%s works again", self._name)
        self._failures = self._failures + 1 if failure else 0
        self.failure = failure

    def _pause(self) -> None:
        seconds = self._interval_s()
        if self._failures and self._retry_s is not None:
            first, longest = self._retry_s
            seconds = min(first * 2.0 ** min(self._failures - 1, 10), longest)
        self._wait(self._woken, seconds)
        self._woken.clear()
