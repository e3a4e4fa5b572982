"""How long a process that isn't ready is waited for: as long as it makes progress, up to a bound.

On a busy machine a start may take many times its usual time, and ending it would only make it begin again. So the clock
alone ends nothing. A process makes progress if its log changes or if it uses processor time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# The supervisor waits no longer than this for a start, so that a process that loops forever is ended, too. A broker
# with thousands of topics starts within some minutes even if it gets a tenth of a processor.
LONGEST_START_SECONDS: Final = 1800.0

# A process makes progress if it uses this share of one processor, or writes to its log. The timers of an idle JVM take
# a hundredth of a processor. A process that competes with thirty others for one processor still gets 0.03.
BUSY_SHARE: Final = 0.03

# The most seconds between two looks at a process. A look reads the system's table of processes, which takes some
# milliseconds.
LOOK_SECONDS: Final = 1.0
# A process is looked at no fewer times than this before it is given up because it makes no progress.
LOOKS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """The signs of work of a process until now.

    Attributes:
        log_bytes: The size of its log.
        processor_s: The processor time in seconds that it has used, with its descendants.
    """

    log_bytes: int
    processor_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """A process is waited for no longer.

    Attributes:
        seconds: The limit that it has exceeded.
        why: The reason, for people.
    """

    seconds: float
    why: str


class ProgressTimeout:
    """Decides whether a process that isn't ready is still waited for."""

    def __init__(
        self,
        idle_s: float,
        signs: Callable[[], Signs],
        *,
        longest_s: float = LONGEST_START_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to wait for a process.

        Args:
            idle_s: The seconds without progress after which the process is given up.
            signs: Returns the signs of work of the process.
            longest_s: The seconds after which it is given up in any case; at least `idle_s`.
            clock: Returns a time in seconds.
        """
        self._idle_s = idle_s
        self._longest_s = max(idle_s, longest_s)
        self._signs = signs
        self._clock = clock
        self._look_s = min(LOOK_SECONDS, idle_s / LOOKS)
        self._began_at = self._progress_at = self._looked_at = clock()
        self._last = signs()

    def given_up(self, *, excused: bool = False) -> GivenUp | None:
        """Return why the process is to be ended, or None if it is waited for.

        Args:
            excused: True if the process can't become ready now, since it needs another one that isn't ready. That time
                doesn't count as time without progress.
        """
        now = self._clock()
        if now >= self._looked_at + self._look_s:
            self._looked_at = now
            if self._has_moved() or excused:
                self._progress_at = now
        if now - self._progress_at > self._idle_s:
            why = f"in this time it wrote nothing to its log and used less than {BUSY_SHARE:.0%} of a processor"
            return GivenUp(seconds=self._idle_s, why=why)
        if now - self._began_at > self._longest_s:
            return GivenUp(seconds=self._longest_s, why="it made progress, but no start may take longer")
        return None

    def _has_moved(self) -> bool:
        """Return whether there was progress since the last time that this was True."""
        signs, last = self._signs(), self._last
        used = signs.processor_s - last.processor_s
        if signs.log_bytes != last.log_bytes or used >= BUSY_SHARE * self._idle_s:
            self._last = signs
            return True
        if used < 0:
            # The processor time is a sum over the process and its descendants. The sum falls when a descendant ends and
            # no parent takes over its time. Further use is then counted from the lower sum.
            self._last = signs
        return False


def signs_of(pid: int, log: Path | None) -> Signs:
    """Return the signs of work of a process that writes to `log`; None: it has no log of its own."""
    # psutil takes 5 MB of memory, so the supervisor of a server, whose workers are ready at once, never imports it.
    from caraway.process.children.process_table import processor_seconds  # noqa: PLC0415

    try:
        log_bytes = 0 if log is None else log.stat().st_size
    except OSError:
        log_bytes = 0
    return Signs(log_bytes=log_bytes, processor_s=processor_seconds(pid))
