"""The lives of many rows in a window at once, in columns; `compute.reference.aggregates.windows` has the rules."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from caraway.compute.reference.aggregates.windows import REST_US
from caraway.graph.windows import ContinuousWindow, HoppingWindow

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# The entry in `leaves` of a row that never leaves.
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Lives:
    """The read times at which rows count: from `enters` on, before `leaves`; a row that never counts has none.

    Attributes:
        enters: The first read time of each row.
        leaves: The read time at which it leaves, NEVER if it stays.
    """

    enters: Ints
    leaves: Ints

    @property
    def ever(self) -> Flags:
        """True for each row that ever counts."""
        return self.enters < self.leaves

    def at(self, at_us: int) -> Flags:
        """Return which rows count at a time."""
        return (self.enters <= at_us) & (at_us < self.leaves)


def lives(window: ContinuousWindow | HoppingWindow, times: Ints, ends: Ints, max_event_time_us: int) -> Lives:
    """Return the lives of rows; see `caraway.compute.reference.aggregates.windows.life`.

    Args:
        window: The window of an aggregate.
        times: The event times of rows in microseconds.
        ends: The times at which rows are taken back, NEVER for others.
        max_event_time_us: The greatest time that the aggregation has seen.
    """
    if isinstance(window, HoppingWindow):
        return _bucketed(window, times, ends, max_event_time_us - window.lookback_us)
    if window.length_us is None:
        return Lives(times, ends)
    return Lives(times, np.minimum(times + (window.length_us + REST_US), ends))


def _bucketed(window: HoppingWindow, times: Ints, ends: Ints, closed_us: int) -> Lives:
    enters = _next_ends(window, times)
    leaves = np.full(len(times), NEVER)
    if window.length_us is not None:
        leaves = _next_ends(window, times + window.length_us)
    ended = ends < NEVER
    leaves[ended] = np.minimum(leaves[ended], _next_ends(window, ends[ended]))
    leaves[leaves > closed_us] = NEVER
    never = enters > closed_us
    leaves[never] = enters[never]
    return Lives(enters, leaves)


def _next_ends(window: HoppingWindow, times: Ints) -> Ints:
    offset_us = window.length_us or 0
    found: Ints = (times - offset_us) // window.stride_us * window.stride_us + window.stride_us + offset_us
    return found


def bounds(window: ContinuousWindow | HoppingWindow, at_us: int, max_event_time_us: int) -> tuple[int | None, int]:
    """Return the event times that count at a read time: from the first, inclusive, up to the second, exclusive.

    The first is None if the window has no begin.
    """
    length_us = window.length_us
    if isinstance(window, HoppingWindow):
        closed_us = min(at_us, max_event_time_us - window.lookback_us)
        offset_us = length_us or 0
        end_us = (closed_us - offset_us) // window.stride_us * window.stride_us + offset_us
        return None if length_us is None else end_us - length_us, end_us
    # A row counts until its age in whole seconds exceeds the length, so it stays up to a second longer.
    return None if length_us is None else at_us - length_us - REST_US + 1, at_us + 1
