"""The life of a row in a window: the interval of read times at which the row counts.

All windows of aggregates are defined by lives. A value at T is computed from the rows that are alive at T.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from caraway.dtypes.durations import US_PER_SECOND
from caraway.graph.windows import ContinuousWindow, HoppingWindow

# A window counts a row if the row's age at the time of the read, cut to whole seconds, is at most the window's length.
# So a row leaves this much later than its time plus the length.
REST_US = US_PER_SECOND
# The end of a session's window, in microseconds after the begin of the second in which the session's last row lies.
SESSION_END_US = 1


class Life(NamedTuple):
    """The read times at which a row counts: from `enter_us` to `leave_us`, exclusive; None means for ever."""

    enter_us: int
    leave_us: int | None

    def holds(self, at_us: int) -> bool:
        """Return whether the row counts at a time."""
        return self.enter_us <= at_us and (self.leave_us is None or at_us < self.leave_us)


def life(
    window: ContinuousWindow | HoppingWindow, time_us: int, retracted_us: int | None, max_event_time_us: int
) -> Life | None:
    """Return the life of a row in a window.

    Args:
        window: The window of the aggregate.
        time_us: The event time of the row.
        retracted_us: The time of its retraction; None if there is none.
        max_event_time_us: The greatest time that the aggregation has seen, of any group.

    Returns:
        The life; None if the row never counts, because its first bucket isn't closed yet or closes after the
        retraction.
    """
    match window:
        case ContinuousWindow(length_us=None):
            born = Life(time_us, retracted_us)
        case ContinuousWindow(length_us=int(length_us)):
            expiry_us = time_us + length_us + REST_US
            born = Life(time_us, expiry_us if retracted_us is None else min(expiry_us, retracted_us))
        case HoppingWindow():
            born = _bucketed(window, time_us, retracted_us, max_event_time_us - window.lookback_us)
    return born if born.leave_us is None or born.enter_us < born.leave_us else None


def _bucketed(window: HoppingWindow, time_us: int, retracted_us: int | None, closed_us: int) -> Life:
    """Return the life from the end of the first bucket with the row to the end of the first later bucket without it.

    The row doesn't leave at a bucket that ends after `closed_us`, since that bucket isn't closed yet.
    """
    leaves = []
    if window.length_us is not None:
        # The end of the first bucket that begins after the row.
        leaves.append(next_end(window, time_us + window.length_us))
    if retracted_us is not None:
        leaves.append(next_end(window, retracted_us))
    enter_us = next_end(window, time_us)
    if enter_us > closed_us:
        return Life(enter_us, enter_us)
    leave_us = min(leaves, default=None)
    return Life(enter_us, None if leave_us is None or leave_us > closed_us else leave_us)


def next_end(window: HoppingWindow, time_us: int) -> int:
    """Return the first bucket end after a time: `n * stride + length`, or a multiple of the stride if unbounded."""
    offset_us = window.length_us or 0
    return (time_us - offset_us) // window.stride_us * window.stride_us + window.stride_us + offset_us


def buckets_of(window: HoppingWindow, length_us: int, time_us: int, max_event_time_us: int) -> Iterator[int]:
    """Yield the ends of the closed buckets that hold a row."""
    end_us = next_end(window, time_us)
    while end_us <= min(time_us + length_us, max_event_time_us - window.lookback_us):
        yield end_us
        end_us += window.stride_us


def sessions(times_us: Sequence[int], gap_us: int) -> list[tuple[int, int]]:
    """Divide ascending times into sessions: runs in which each time is at most `gap_us` after the one before.

    Times count in whole seconds.

    Returns:
        For each session the position of its first time, and the position after its last time.
    """
    starts = [
        position
        for position, time_us in enumerate(times_us)
        if not position or _second(time_us) - _second(times_us[position - 1]) > gap_us
    ]
    return list(pairwise([*starts, len(times_us)]))


def session_window(first_us: int, last_us: int) -> tuple[int, int]:
    """Return the interval of a session: from the second of its first row to the end of the second of its last row."""
    return _second(first_us), _second(last_us) + SESSION_END_US


def _second(time_us: int) -> int:
    return time_us // US_PER_SECOND * US_PER_SECOND
