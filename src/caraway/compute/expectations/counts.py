"""Counts of rows that were as expected, by windows of event time.

Counts of different rows can be added up, in any order. So what several batches have is what their rows have together.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from caraway.compute.expectations.suite import Checked
from caraway.dtypes.durations import US_PER_SECOND

WINDOW_US = 5 * 60 * US_PER_SECOND
"""The length of a window."""
HOUR_US = 3600 * US_PER_SECOND
DAY_US = 24 * HOUR_US


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows a check looked at, and how many of them failed."""

    evaluated: int = 0
    failed: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.evaluated + other.evaluated, self.failed + other.failed)

    @property
    def rate(self) -> float | None:
        """The share of rows that passed; None if no row was looked at."""
        return None if not self.evaluated else (self.evaluated - self.failed) / self.evaluated

    def are_as_expected(self, mostly: float) -> bool:
        """Return whether enough rows passed, given the share that should; so it is if no row was looked at."""
        return not self.evaluated or (self.evaluated - self.failed) / self.evaluated >= mostly


# Counts by the number of a check in its suite, and the start of a window in microseconds since the epoch.
ByWindow = Mapping[tuple[int, int], Counts]


def by_window(checked: Sequence[Checked], times_us: npt.NDArray[np.int64]) -> dict[tuple[int, int], Counts]:
    """Return the counts of some rows, given the result of each check and the event times of the rows."""
    if not len(times_us):
        return {}
    starts, places = np.unique(times_us - times_us % WINDOW_US, return_inverse=True)
    found: dict[tuple[int, int], Counts] = {}
    for number, one in enumerate(checked):
        evaluated = np.bincount(places[one.evaluated], minlength=len(starts)).tolist()
        failed = np.bincount(places[one.failed], minlength=len(starts)).tolist()
        for start, rows, failures in zip(starts.tolist(), evaluated, failed, strict=True):
            if rows:
                found[number, start] = Counts(rows, failures)
    return found


def added(counts: Iterable[ByWindow]) -> dict[tuple[int, int], Counts]:
    """Return the sum of several counts."""
    found: dict[tuple[int, int], Counts] = {}
    for each in counts:
        for key, one in each.items():
            found[key] = found.get(key, NONE) + one
    return found


NONE = Counts()
