"""Reading aggregates over windows out of the tile pyramid: exactly, at any time."""

from collections.abc import Callable, Sequence
from functools import partial

from rocksdict import RdictIter

from caraway.errors import InvalidInputError
from caraway.index.changes import last_change
from caraway.index.descent import Descent
from caraway.index.entries import Contents, Ended, KeyEntries, Shape
from caraway.index.frontier import read_frontier
from caraway.index.geometry import Geometry
from caraway.index.keys import key_prefix
from caraway.index.lists import ListReader
from caraway.index.partials import HAS_ENDED
from caraway.index.results import Result, results_of
from caraway.index.spans import OwnWindow, Span, has_frontier, own_windows, span_at
from caraway.plan.model import IndexPlan

# Reads a key at a time: the columns' values, and whether it was found.
Read = Callable[[bytes, int], tuple[list[object], bool]]


class WindowReader:
    """Reads aggregates of one index. The windows of all sums share one descent."""

    def __init__(self, plan: IndexPlan, columns: Sequence[str], geometry: Geometry) -> None:
        """Prepare to read `columns`.

        Raises:
            InvalidInputError: A column that the dataset doesn't have.
        """
        self._asset = plan.asset
        self._shape = Shape(plan, geometry)
        self._has_frontier = has_frontier(plan)
        self._needs_time = plan.schema.timestamp in columns
        results = results_of(plan, self._shape.layout)
        wanted = [results[name] for name in columns if name in results]
        self._summed: dict[OwnWindow, list[Result]] = {}
        self._lists: list[tuple[Result, ListReader]] = []
        for result in wanted:
            if result.finish is None:
                self._lists.append((result, ListReader(result.spec, self._shape)))
            else:
                self._summed.setdefault(_window(result), []).append(result)
        self._needed = frozenset[int]().union(*(result.extras for result in wanted))
        # Where they don't all end now, a key is there as soon as one of its windows has closed.
        self._windows = own_windows(plan)
        self._needs_all = self._has_frontier or self._needs_time
        keys = {column.name: position for position, column in enumerate(plan.schema.keys)}
        self._needs_key = any(name in keys for name in columns)
        self._columns = tuple(pick(name, plan, keys, results) for name in columns)

    def bound(self, iterator: RdictIter) -> Read:
        """Return what reads keys from one state of the database."""
        frontier_us = read_frontier(iterator, self._asset) if self._has_frontier else None
        return partial(self._read, iterator, frontier_us)

    def _read(self, iterator: RdictIter, frontier_us: int | None, key: bytes, at_us: int) -> tuple[list[object], bool]:
        """Return the columns' values as of `at_us`, and whether the key had any contribution by then."""
        echo = self._shape.codec.decode_key(key) if self._needs_key else []
        entries = KeyEntries(self._shape, iterator, key_prefix(self._asset, key))
        root = entries.root()
        values: dict[str, object] = {}
        time_us: int | None = None
        if root is None:
            return [pick(echo, values, time_us) for pick in self._columns], False
        spans = {window: span_at(window, at_us, frontier_us) for window in self._summed}
        if self._needs_all or self._lists:
            spans = {window: span_at(window, at_us, frontier_us) for window in self._windows}
        ends = [last for _, last in spans.values()] if self._has_frontier else [at_us]
        latest = max(ends)
        ended = list(entries.ended_after(min(ends))) if root[3] & HAS_ENDED else []
        there = root[0] and root[1] <= latest and (self._shape.bounds_exact or entries.last_time(latest) is not None)
        found = bool(there) or (root[3] & HAS_ENDED and _was_there(entries, ended, latest))
        if found:
            contents = Contents(entries, root if there else None, ended)
            if self._summed:
                self._sums(contents, spans, at_us, values)
            for result, reader in self._lists:
                values[result.name] = reader.read(contents, spans[_window(result)])
            if self._needs_time:
                time_us = last_change(entries, list(spans.items()), ended)
        return [pick(echo, values, time_us) for pick in self._columns], bool(found)

    def _sums(self, contents: Contents, spans: dict[OwnWindow, Span], at_us: int, values: dict[str, object]) -> None:
        results: dict[Span, list[Result]] = {}
        for window, of_window in self._summed.items():
            results.setdefault(spans[window], []).extend(of_window)
        filled = [span for span in results if span[0] <= span[1]]
        for span, total in Descent(self._shape, contents, filled, self._needed).totals():
            finish_all(results[span], total, at_us, values)
        for span in results.keys() - set(filled):
            finish_all(results[span], self._shape.layout.total(self._needed), at_us, values)


def finish_all(results: Sequence[Result], total: object, at_us: int, values: dict[str, object]) -> None:
    """Compute results of one span."""
    for result in results:
        if result.finish is not None:
            values[result.name] = result.finish(total, at_us)  # type: ignore[arg-type]


def _was_there(entries: KeyEntries, ended: Sequence[Ended], latest: int) -> bool:
    """Tell whether a contribution that was taken back is or was in a window by a time."""
    return any(item.record.time <= latest for item in ended) or next(entries.ended_by(latest), None) is not None


def _window(result: Result) -> OwnWindow:
    window = result.spec.window
    if window is None:
        raise TypeError(f"{result.name} has no window of its own")
    return window


Pick = Callable[[list[object], dict[str, object], int | None], object]


def pick(name: str, plan: IndexPlan, keys: dict[str, int], results: dict[str, Result]) -> Pick:
    """Return what gives a column's value from the key asked for, the results and the time of the last change."""
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
