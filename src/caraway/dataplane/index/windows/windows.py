"""Reading aggregates over windows from the tile pyramid: exactly, as of any time."""

from collections.abc import Callable, Sequence
from functools import partial

from rocksdict import RdictIter

from caraway.dataplane.index.aggregates.partials import HAS_ENDED, Partial
from caraway.dataplane.index.aggregates.results import Result, results_of
from caraway.dataplane.index.records.closing_time import read_closing_time
from caraway.dataplane.index.storage.geometry import Geometry
from caraway.dataplane.index.storage.intervals import (
    Interval,
    OwnWindow,
    has_max_event_time,
    interval_at,
    latest,
    own_windows,
)
from caraway.dataplane.index.storage.keys import key_prefix
from caraway.dataplane.index.windows.entries import Contents, Ended, IndexShape, KeyEntries
from caraway.dataplane.index.windows.last_change import last_change
from caraway.dataplane.index.windows.lists import ListReader
from caraway.dataplane.index.windows.range_query import totals_of
from caraway.errors import InvalidInputError
from caraway.graph.plan.model import IndexPlan

# A function that reads a key as of a time in microseconds. It returns the values of the columns, and whether the key
# was found.
Read = Callable[[bytes, int], tuple[list[object], bool]]
# A function that returns the closing time of an asset in the other shards of a divided index, which are in other
# databases; None if it isn't known. Discrete windows close by the greatest closing time of all shards.
Elsewhere = Callable[[bytes], int | None]


class WindowReader:
    """A reader of the aggregates of one index. The windows of all sums share one range query."""

    def __init__(self, plan: IndexPlan, columns: Sequence[str], geometry: Geometry) -> None:
        """Prepare to read `columns`. Raises `InvalidInputError` if the dataset lacks a column."""
        self._plan = plan
        self._asset = plan.asset
        self._shape = IndexShape(plan, geometry)
        self._has_max_event_time = has_max_event_time(plan)
        self._needs_time = plan.schema.timestamp in columns
        results = results_of(plan, self._shape.layout)
        wanted = [results[name] for name in columns if name in results]
        self._lists = [(r, _window(r), ListReader(r.spec, self._shape)) for r in wanted if r.finish is None]
        summed: dict[OwnWindow, list[Result]] = {}
        for result in wanted:
            if result.finish is not None:
                summed.setdefault(_window(result), []).append(result)
        self._summed = summed
        self._needed = frozenset[int]().union(*(result.extras for result in wanted))
        # If windows are discrete, all windows of the plan decide whether a key is found; all decide about the time of
        # the last change too. Other reads need only the windows of their columns.
        needs_all = self._has_max_event_time or self._needs_time
        self._windows = tuple(own_windows(plan) if needs_all else {*summed, *(window for _, window, _ in self._lists)})
        self._summed_at = [self._windows.index(window) for window in summed]
        keys = {column.name: position for position, column in enumerate(plan.schema.keys)}
        self._needs_key = any(name in keys for name in columns)
        self._columns = tuple(pick(name, plan, keys, results) for name in columns)

    def bound(self, iterator: RdictIter, elsewhere: Elsewhere | None = None) -> Read:
        """Return a function that reads keys from one state of the database; for `elsewhere` see `Elsewhere`."""
        closing_us = closing_time_at(iterator, self._plan, elsewhere) if self._has_max_event_time else None
        return partial(self._read, iterator, closing_us)

    def _read(self, iterator: RdictIter, closing_us: int | None, key: bytes, at_us: int) -> tuple[list[object], bool]:
        """Return the columns' values as of `at_us`, and whether the key had any aggregate input by then."""
        echo = self._shape.codec.decode_key(key) if self._needs_key else []
        entries = KeyEntries(self._shape, iterator, key_prefix(self._asset, key))
        root = entries.root()
        values: dict[str, object] = {}
        if root is None:
            return [pick(echo, values, None) for pick in self._columns], False
        intervals: list[Interval] = []
        least = latest = at_us
        if self._has_max_event_time:
            # A discrete window shows an aggregate input only after the bucket has closed. So the key is found only if
            # it has an aggregate input in the last closed bucket of a window, or before it.
            intervals = [interval_at(window, at_us, closing_us) for window in self._windows]
            ends = [last for _, last in intervals]
            least, latest = min(ends), max(ends)
        has_ended = root[3] & HAS_ENDED
        ended = list(entries.ended_after(least)) if has_ended else ()
        there = root[0] and root[1] <= latest and (self._shape.bounds_exact or entries.last_time(latest) is not None)
        if not there and not (has_ended and _was_there(entries, ended, latest)):
            return [pick(echo, values, None) for pick in self._columns], False
        contents = Contents(entries, root if there else None, ended)
        if not self._has_max_event_time:
            intervals = [interval_at(window, at_us, None) for window in self._windows]
        if self._summed:
            wanted = [intervals[position] for position in self._summed_at]
            totals = totals_of(self._shape, contents, wanted, self._needed)
            for results, total in zip(self._summed.values(), totals, strict=True):
                finish_all(results, total, at_us, values)
        for result, window, reader in self._lists:
            values[result.name] = reader.read(contents, intervals[self._windows.index(window)])
        time_us = None
        if self._needs_time:
            time_us = last_change(entries, list(zip(self._windows, intervals, strict=True)), ended)
        return [pick(echo, values, time_us) for pick in self._columns], True


def closing_time_at(iterator: RdictIter, plan: IndexPlan, elsewhere: Elsewhere | None) -> int | None:
    """Return the closing time of an index over all of its parts (`caraway.dataplane.index.records.closing_time`)."""
    here = read_closing_time(iterator, plan)
    return here if elsewhere is None else latest(here, elsewhere(plan.asset))


def finish_all(results: Sequence[Result], total: Partial, at_us: int, values: dict[str, object]) -> None:
    """Compute the results of one interval."""
    for result in results:
        if result.finish is not None:
            values[result.name] = result.finish(total, at_us)


def _was_there(entries: KeyEntries, ended: Sequence[Ended], latest: int) -> bool:
    """Return whether an aggregate input that ended is or was in a window at or before a time."""
    return any(item.record.time <= latest for item in ended) or next(entries.ended_by(latest), None) is not None


def _window(result: Result) -> OwnWindow:
    window = result.spec.window
    if window is None:
        raise TypeError(f"{result.name} has no window of its own")
    return window


Pick = Callable[[list[object], dict[str, object], int | None], object]


def pick(name: str, plan: IndexPlan, keys: dict[str, int], results: dict[str, Result]) -> Pick:
    """Return a function from the requested key, the results and the time of the last change to a column's value."""
    if name in keys:
        position = keys[name]
        return lambda key, _values, _time: key[position]
    if name == plan.schema.timestamp:
        return lambda _key, _values, time_us: time_us
    if name in results:
        unseen = results[name].unseen
        return lambda _key, values, _time: values.get(name, unseen)
    known = ", ".join([*keys, *results, plan.schema.timestamp])
    raise InvalidInputError(f"{plan.dataset} has no column {name}; it has {known}")
