"""Rounds: a source that is polled is looked through completely every so often (`every=` of `@source`).

The time of the next round is a time of day, since it is kept in the position and outlives the process. A time of day
may jump, so it is never trusted to be far away: a next round that lies more than one interval ahead begins at once.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from caraway.dataplane.sources.reader import SourceBatch
from caraway.dtypes.durations import US_PER_SECOND

# The interval in seconds of a source that names none; `SOURCE_EVERY` in `caraway.connectors.data_connector` is the
# same.
EVERY_S = 30 * 60.0


class Rounds:
    """When the rounds of one source begin. The first one begins at once; they never overlap.

    The interval counts from the beginning of a round to the beginning of the next one. If a round takes longer than
    that, the next one begins when it has ended.
    """

    def __init__(
        self,
        every_us: int | None,
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare.

        Args:
            every_us: The interval in microseconds; None: 30 minutes.
            now: Returns the time in seconds since the epoch, which may jump.
            sleep: Waits for some seconds.
        """
        self._every_s = EVERY_S if every_us is None else every_us / US_PER_SECOND
        self._now = now
        self._sleep = sleep
        self._found = False
        self.next_at = 0.0
        """When the next round may begin, in seconds since the epoch: to be kept in the position, and set from it."""
        self.is_on = False
        """True while a round goes on."""
        self.idle_at: float | None = None
        """When the last poll of a round without rows began, by `time.monotonic`; None if rows were found since."""

    def begin(self) -> None:
        """Note that a round begins now."""
        self.next_at = self._now() + self._every_s
        self.is_on, self._found = True, False

    def end(self) -> None:
        """Note that the round has looked at everything."""
        self.is_on = False

    def note(self, rows: int, begun: float) -> None:
        """Note how many rows a poll has found that began at a time of `time.monotonic`."""
        if rows:
            self._found, self.idle_at = True, None
        elif not self.is_on and not self._found:
            self.idle_at = begun

    def to_json(self) -> dict[str, Any]:
        """Return what a position keeps."""
        return {"next": self.next_at, "reading": self.is_on}

    def go_on(self, position: Mapping[str, Any]) -> None:
        """Go on from what a position keeps: an interrupted round goes on at once."""
        self.next_at, self.is_on = float(position.get("next", 0.0)), bool(position.get("reading"))

    def wait(self, most_s: float) -> bool:
        """Wait for the next round, at most for some seconds; return whether it is due."""
        if (left := self.left_s()) > 0:
            self._sleep(min(left, most_s))
            left = self.left_s()
        return left <= 0

    def left_s(self) -> float:
        """Return the seconds until the next round, 0 if it is due."""
        left = self.next_at - self._now()
        return left if 0 < left <= self._every_s else 0.0


class ReadInRounds:
    """The methods that readers which look through everything in rounds share (`SourceReader`)."""

    _rounds: Rounds

    def acknowledge(self, position: Mapping[str, Any]) -> None:
        """Do nothing: stores and tables don't know who reads them."""

    def lag(self) -> int | None:
        """Return 0 between rounds: what came since isn't known before the next one; None within a round."""
        return None if self._rounds.is_on else 0

    def idle_at(self) -> float | None:
        """Return when the last round began, if it found no row."""
        return self._rounds.idle_at


class PolledInRounds(ReadInRounds, ABC):
    """The poll of readers that find out at the beginning of a round what it has to read."""

    def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
        """Return the next rows; see `SourceReader.poll`."""
        begun = time.monotonic()
        if not self._rounds.is_on:
            if not self._rounds.wait(timeout_s):
                return None
            self._rounds.begin()
        self._prepare()
        batch = self._read(rows, size)
        self._rounds.note(len(batch.rows), begun)
        return batch

    @abstractmethod
    def _prepare(self) -> None:
        """Find out what this round has to read, unless that is known."""

    @abstractmethod
    def _read(self, rows: int, size: int) -> SourceBatch:
        """Return the next rows of the round, or end it."""


def place_of(mark: str) -> tuple[int, int, int]:
    """Return the numbers in the mark of a table's row: of the version or snapshot, of its file, and of the row."""
    file, _, row = mark.partition("/")
    version, _, number = file.partition("-")
    return int(version), int(number), int(row)
