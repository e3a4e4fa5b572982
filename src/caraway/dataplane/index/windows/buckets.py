"""Reading aggregates whose groupby has a window: a row for each closed window, found by its begin and end."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from rocksdict import RdictIter

from caraway.dataplane.index.aggregates.results import results_of
from caraway.dataplane.index.storage.geometry import Geometry
from caraway.dataplane.index.storage.intervals import Interval, has_max_event_time, last_end
from caraway.dataplane.index.storage.keys import key_prefix
from caraway.dataplane.index.windows.entries import Contents, IndexShape, KeyEntries
from caraway.dataplane.index.windows.lists import ListReader
from caraway.dataplane.index.windows.range_query import totals_of
from caraway.dataplane.index.windows.sessions import SECOND_US, sessions_from
from caraway.dataplane.index.windows.windows import Elsewhere, Read, closing_time_at, finish_all, pick
from caraway.dataplane.topics.codec import RecordCodec
from caraway.errors import InvalidInputError
from caraway.graph.plan.model import IndexPlan
from caraway.graph.windows import HoppingWindow, SessionWindow


class BucketReader:
    """Reads the rows of one index by group and window."""

    def __init__(self, plan: IndexPlan, columns: Sequence[str], geometry: Geometry) -> None:
        """Prepare to read `columns`.

        Raises `InvalidInputError` if the dataset lacks a column, or its windows have no begin.
        """
        match plan.window:
            case HoppingWindow(length_us=int(length_us)) as window:
                self._find: Find = partial(_find_bucket, window, length_us, shows_empty=bool(plan.aggregates))
            case SessionWindow():
                self._find = _find_session
            case _:
                raise InvalidInputError(f"{plan.dataset}: buckets without a begin can't be keys")
        self._plan = plan
        self._asset = plan.asset
        self._has_max_event_time = has_max_event_time(plan)
        self._shape = IndexShape(plan, geometry)
        self._keys = RecordCodec.of_keys(plan.keys)
        results = results_of(plan, self._shape.layout)
        wanted = [results[name] for name in columns if name in results]
        self._summed = [result for result in wanted if result.finish is not None]
        self._lists = [(r, ListReader(r.spec, self._shape)) for r in wanted if r.finish is None]
        self._needed = frozenset[int]().union(*(result.extras for result in wanted))
        keys = {column.name: position for position, column in enumerate(plan.keys)}
        self._columns = tuple(pick(name, plan, keys, results) for name in columns)

    def bound(self, iterator: RdictIter, elsewhere: Elsewhere | None = None) -> Read:
        """Return a function that reads keys from one state of the database; for `elsewhere` see `Elsewhere`."""
        closing_us = closing_time_at(iterator, self._plan, elsewhere) if self._has_max_event_time else None
        return partial(self._read, iterator, closing_us)

    def _read(self, iterator: RdictIter, closing_us: int | None, key: bytes, at_us: int) -> tuple[list[object], bool]:
        """Return the columns' values as of `at_us`, and whether the window exists and is closed."""
        *group, bounds = echo = self._keys.decode_key(key)
        values: dict[str, object] = {}
        match bounds:
            case [int(begin_us), int(end_us)]:
                pass
            case _:
                raise InvalidInputError(f"{bounds!r} is no window; it has a begin and an end")
        prefix = key_prefix(self._asset, self._shape.codec.encode_key(group) or b"")
        entries = KeyEntries(self._shape, iterator, prefix)
        interval = self._find(entries, Bounds(prefix, begin_us, end_us, closing_us)) if end_us <= at_us else None
        if interval is not None:
            self._fill(entries, interval, at_us, values)
        return [
            pick(echo, values, None if interval is None else end_us) for pick in self._columns
        ], interval is not None

    def _fill(self, entries: KeyEntries, interval: Interval, at_us: int, values: dict[str, object]) -> None:
        contents = Contents(entries, entries.root(), ())
        for total in totals_of(self._shape, contents, [interval], self._needed):
            finish_all(self._summed, total, at_us, values)
        for result, reader in self._lists:
            values[result.name] = reader.read(contents, interval)


class Bounds(NamedTuple):
    """A window to be found: the prefix of its group's entries, its begin and end, and the closing time."""

    prefix: bytes
    begin_us: int
    end_us: int
    closing_us: int | None


# A function that finds the window of a group with the given begin and end, and returns the first and the last event
# time in it. It returns None if there is no such window, or if it is a bucket that isn't closed yet.
Find = Callable[[KeyEntries, Bounds], Interval | None]


def _find_bucket(
    window: HoppingWindow, length_us: int, entries: KeyEntries, asked: Bounds, *, shows_empty: bool
) -> Interval | None:
    end_us, closing_us = asked.end_us, asked.closing_us
    if end_us - asked.begin_us != length_us or last_end(window, end_us) != end_us:
        return None
    if closing_us is None or end_us > closing_us - window.lookback_us:
        return None
    interval = end_us - length_us, end_us - 1
    if _has_any(entries, *interval):
        return interval
    # The first empty window after windows with aggregate inputs has a row too, which shows that no more aggregate
    # inputs came.
    before = shows_empty and _has_any(entries, interval[0] - window.stride_us, interval[1] - window.stride_us)
    return interval if before else None


def _find_session(entries: KeyEntries, asked: Bounds) -> Interval | None:
    session = next(sessions_from(entries.iterator, asked.prefix, asked.begin_us, asked.begin_us), None)
    if session is None or session.end_us != asked.end_us:
        return None
    return session.first_us, session.last_us + SECOND_US - 1


def _has_any(entries: KeyEntries, first: int, last: int) -> bool:
    time_us = entries.first_time(first)
    return time_us is not None and time_us <= last
