"""When an aggregate last changed: an aggregate input came into one of its windows, left it or was taken back."""

from collections.abc import Iterable, Sequence

from caraway.graph.windows import ContinuousWindow
from caraway.index.storage.intervals import WINDOW_REST_US, Interval, OwnWindow, life, next_end
from caraway.index.windows.entries import Ended, KeyEntries


def last_change(
    entries: KeyEntries, intervals: Sequence[tuple[OwnWindow, Interval]], ended: Iterable[Ended]
) -> int | None:
    """Return when one of the windows last changed, None if none of them did.

    Args:
        entries: The key's entries.
        intervals: All windows of the plan, with what they hold at the time of the read.
        ended: What was taken back after the first of the intervals' ends.
    """
    newest: int | None = None
    for window, (_, last) in intervals:
        newest = _later(newest, *_of_live(entries, window, last))
    for item in ended:
        newest = _later(newest, *_of_ended(item, intervals))
    least = min(last for _, (_, last) in intervals)
    for item in entries.ended_by(least):
        # It changed nothing after it was taken back, and what comes next was taken back before.
        if newest is not None and max(_seen(window, item.end_us) for window, _ in intervals) <= newest:
            break
        newest = _later(newest, *_of_ended(item, intervals))
    return newest


def _of_live(entries: KeyEntries, window: OwnWindow, last: int) -> Iterable[int | None]:
    """Yield when the last aggregate input came into a window, and when the last one that is gone by now left it."""
    came = entries.last_time(last)
    if came is None:
        return
    yield life(window, came, None)[0]
    if window.length_us is not None:
        rest = WINDOW_REST_US if isinstance(window, ContinuousWindow) else 0
        left = entries.last_time(last - window.length_us - rest)
        if left is not None:
            yield life(window, left, None)[1]


def _of_ended(item: Ended, intervals: Sequence[tuple[OwnWindow, Interval]]) -> Iterable[int | None]:
    for window, (_, last) in intervals:
        enter_us, leave_us = life(window, item.record.time, item.end_us)
        now = _now(window, last)
        if enter_us > now or (leave_us is not None and leave_us <= enter_us):
            continue
        yield enter_us
        if leave_us is not None and leave_us <= now:
            yield leave_us


def _seen(window: OwnWindow, time_us: int) -> int:
    """Return when a window shows what happened at a time."""
    return time_us if isinstance(window, ContinuousWindow) else next_end(window, time_us)


def _now(window: OwnWindow, last: int) -> int:
    """Return the time whose state a window shows: for discrete ones the end of the bucket."""
    return last if isinstance(window, ContinuousWindow) else last + 1


def _later(newest: int | None, *times: int | None) -> int | None:
    return max((time_us for time_us in (newest, *times) if time_us is not None), default=None)
