"""A watch: what it does, and the thread in which it does it."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa

from caraway.errors import UnavailableError
from caraway.process.recurring import Recurring
from caraway.process.settings.settings import Settings

# The largest share of its time for which a watch works, unless it makes no pauses: after a pass of one second, the
# watch rests for at least nine.
SHARE = 0.1
RETRY_SECONDS = (2.0, 60.0)


class Watch(ABC):
    """Looks at rows as they come, and records what it finds. Only one thread uses it."""

    @abstractmethod
    def run_once(self) -> bool:
        """Make a pass, and return whether there was anything to do.

        Raises `UnavailableError` if a service doesn't answer; the next call then goes on from there. After any other
        error the watch is closed, and another one is opened.
        """

    def finish(self) -> None:  # noqa: B027 (most watches have nothing to do)
        """Record what is only in memory; it is called before the process ends."""

    def close(self) -> None:  # noqa: B027 (most watches have nothing to do)
        """Close connections, files and processes."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of watch.

    Attributes:
        name: Its name, which is that of its thread, and which appears in the log.
        open: Opens the watch.
        enabled: Returns whether the settings want it.
        seconds: Returns the least seconds between two passes, which rest for nine times as long as they took; None: a
            call of `run_once` waits for rows by itself, and the next one comes at once.
    """

    name: str
    open: Callable[[Settings, sa.Engine], Watch]
    enabled: Callable[[Settings], bool]
    seconds: Callable[[Settings], float | None]


class Watching(Recurring):
    """Runs a watch in a thread, and opens it again after an error.

    Attributes:
        worked_at: When there was something to do last, by `time.monotonic`; at first, when it was made.
    """

    def __init__(self, kind: Kind, settings: Settings, database: sa.Engine) -> None:
        """Prepare; nothing is opened before `start`."""
        super().__init__(
            kind.name, self._make_pass, self._pause_s, retry_s=RETRY_SECONDS, at_once=True, finish=self._finish
        )
        self._open = partial(kind.open, settings, database)
        self._seconds = kind.seconds(settings)
        self._watch: Watch | None = None
        self._took = 0.0
        self.worked_at = time.monotonic()

    def _make_pass(self) -> None:
        began = time.monotonic()
        try:
            if self._watch is None:
                self._watch = self._open()
            if self._watch.run_once():
                self.worked_at = time.monotonic()
        except UnavailableError:
            raise
        except Exception:
            # The error may have left an incomplete change in the watch's memory. All state that matters is in Postgres,
            # so the watch is closed here, and the next pass opens it anew.
            self._close()
            raise
        finally:
            self._took = time.monotonic() - began

    def _pause_s(self) -> float:
        return 0.0 if self._seconds is None else max(self._seconds, self._took * (1 - SHARE) / SHARE)

    def _finish(self) -> None:
        try:
            if self._watch is not None:
                self._watch.finish()
        finally:
            self._close()

    def _close(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
