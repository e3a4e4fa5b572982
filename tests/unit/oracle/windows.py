"""The rows that a window counts at a time, and the times at which it changes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.unit.oracle.plain import SECOND, Continuous, Fact, Hopping, Session


@dataclass(frozen=True)
class Entry:
    """A row as an aggregate sees it: placed on the time axis at `time`, and no longer valid from `end` on (if ever).

    `order` is compared between rows of equal `time`.
    """

    time: int
    end: int | None
    order: tuple[Any, ...]
    fact: Fact


def counts_at(entry: Entry, window: Continuous, at: int) -> bool:
    """Return whether a continuous window counts a row in a read at a time."""
    if not entry.time <= at:
        return False
    if entry.end is not None and not at < entry.end:
        return False
    # A window of an hour has the row of 12:00:00 until 13:00:00.999999.
    return window.length is None or at < entry.time + window.length + SECOND


def changes_of(entry: Entry, window: Continuous) -> list[int]:
    """Return the times at which a row enters a continuous window and leaves it; none if it is never in it."""
    ends = [] if entry.end is None else [entry.end]
    if window.length is not None:
        ends.append(entry.time + window.length + SECOND)
    if ends and min(ends) <= entry.time:
        return []
    return [entry.time, *([min(ends)] if ends else [])]


def bucket_ends(window: Hopping, entries: list[Entry], max_event_time: int) -> list[int]:
    """Return the ends of all complete buckets since shortly before the first row."""
    if not entries:
        return []
    length = window.length or 0
    first = min(entry.time for entry in entries) - 2 * window.stride
    number = (first - length) // window.stride
    ends = []
    while (end := number * window.stride + length) <= max_event_time - window.lookback:
        ends.append(end)
        number += 1
    return ends


def is_in_bucket(entry: Entry, window: Hopping, end: int) -> bool:
    """Return whether the bucket with this end counts a row."""
    second = entry.time // SECOND * SECOND
    if not second < end:
        return False
    if window.length is not None and not end - window.length <= second:
        return False
    # A row of a table must have been valid until the bucket's end.
    return entry.end is None or entry.end >= end


def sessions_of(entries: list[Entry], continues: Callable[[int, int], bool]) -> list[list[Entry]]:
    """Divide rows of a group into sessions; `continues` says of two adjacent times if the later one continues."""
    sessions: list[list[Entry]] = []
    for entry in sorted(entries, key=lambda found: (found.time, found.order)):
        if sessions and continues(sessions[-1][-1].time, entry.time):
            sessions[-1].append(entry)
        else:
            sessions.append([entry])
    return sessions


def continues_a_group(window: Session) -> Callable[[int, int], bool]:
    """Return the rule of sessions that aggregates are computed over: whole seconds, and the gap itself continues."""
    return lambda before, time: time // SECOND * SECOND <= before // SECOND * SECOND + window.gap


def continues_duplicates(window: Session) -> Callable[[int, int], bool]:
    """Return the rule of sessions of duplicates: the very distance counts, and the gap itself doesn't continue."""
    return lambda before, time: time - before < window.gap
