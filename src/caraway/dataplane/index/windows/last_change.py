"""The time of an aggregate's last change: an aggregate input entered a window, left it or ended."""

from collections.abc import Iterable, Sequence

from caraway.dataplane.index.storage.intervals import WINDOW_REST_US, Interval, OwnWindow, latest, life, next_end
from caraway.dataplane.index.windows.entries import Ended, KeyEntries
from caraway.graph.windows import ContinuousWindow


def last_change(
    entries: KeyEntries, intervals: Sequence[tuple[OwnWindow, Interval]], ended: Iterable[Ended]
) -> int | None:
    """Return when one of the windows last changed, None if none of them did.

    Args:
        entries: The key's entries.
        intervals: All windows of the plan, each with the event times in it at the time of the read.
        ended: Aggregate inputs that ended after the earliest end of the intervals.
    """
    newest: int | None = None
    for window, (_, last) in intervals:
        newest = latest(newest, *_of_live(entries, window, last))
    for item in ended:
        newest = latest(newest, *_of_ended(item, intervals))
    least = min(last for _, (_, last) in intervals)
    for item in entries.ended_by(least):
        # `ended_by` yields aggregate inputs in descending order of their ends. The last change that an aggregate input
        # causes is that its end shows in all windows. If the end of this `item` showed by the time of the newest change
        # that is known so far, the ends of the following items showed even earlier, so none of them is newer.
        if newest is not None and max(_seen(window, item.end_us) for window, _ in intervals) <= newest:
            break
        newest = latest(newest, *_of_ended(item, intervals))
    return newest


def _of_live(entries: KeyEntries, window: OwnWindow, last: int) -> Iterable[int | None]:
    """Yield when the last aggregate input entered a window, and when the last one that has left it did so."""
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
    """Return when a window shows an event of a time: discrete windows show it at the end of the bucket."""
    return time_us if isinstance(window, ContinuousWindow) else next_end(window, time_us)


def _now(window: OwnWindow, last: int) -> int:
    """Return the time as of which a window is read: for discrete ones the end of the bucket."""
    return last if isinstance(window, ContinuousWindow) else last + 1
