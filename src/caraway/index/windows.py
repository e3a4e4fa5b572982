"""Reading aggregates over windows out of the tile pyramid: exactly, at any time."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from rocksdict import RdictIter

from caraway.errors import InvalidInputError
from caraway.index.geometry import Geometry
from caraway.index.keys import ENDED, RAW, ROOT, SIGN, TIME_BYTES, key_prefix, pack_u64, tile_key, unpack_u64
from caraway.index.layout import Contribution, Layout, Result
from caraway.index.partials import HAS_ENDED, SPLIT, Partial, unpack
from caraway.index.store import check_end
from caraway.plan.model import IndexPlan
from caraway.topics import RecordCodec

# A row lives until its time plus the window plus this, exclusive: windows count whole seconds.
WINDOW_REST_US = 1_000_000
FIRST_TIME_US, LAST_TIME_US = -SIGN, SIGN - 1


class WindowReader:
    """Reads aggregates of one index. The windows of all of them share one descent."""

    def __init__(self, plan: IndexPlan, columns: Sequence[str], geometry: Geometry) -> None:
        """Prepare to read `columns`.

        Raises:
            InvalidInputError: A column that the dataset doesn't have.
        """
        self._asset = plan.asset
        self.geometry = geometry
        self.codec = RecordCodec(plan.schema)
        self.layout = Layout(plan)
        # After a removal the bounds of a root may be further apart than its contributions.
        self.bounds_exact = not plan.revised
        self.needs_time = plan.schema.timestamp in columns
        results = self.layout.results
        wanted = [results[name] for name in columns if name in results]
        # The longest window comes first; None is forever.
        self._windows = sorted({r.window_us for r in wanted}, key=_shortness)
        self._by_window = [[r for r in wanted if r.window_us == window] for window in self._windows]
        keys = {column.name: position for position, column in enumerate(plan.schema.keys)}
        self._needs_key = any(name in keys for name in columns)
        self._columns = tuple(_pick(name, plan, keys, results) for name in columns)

    def read(self, iterator: RdictIter, key: bytes, at_us: int) -> tuple[list[object], bool]:
        """Return the columns' values as of `at_us`, and whether the key had any contribution by then."""
        echo = self.codec.decode_key(key) if self._needs_key else []
        descent = _Descent(self, iterator, key_prefix(self._asset, key), self._starts(at_us), at_us)
        descent.run()
        values: dict[str, object] = {}
        if descent.found:
            total: Partial | None = None
            for part, results in zip(reversed(descent.parts), reversed(self._by_window), strict=True):
                if total is None:
                    total = part
                else:
                    total.merge(part)
                for result in results:
                    values[result.name] = result.finish(total)
        return [pick(echo, values, descent.time_us) for pick in self._columns], descent.found

    def _starts(self, at_us: int) -> list[int]:
        """Return the first event time of each window."""
        return [
            FIRST_TIME_US if window is None else max(FIRST_TIME_US, at_us - window - WINDOW_REST_US + 1)
            for window in self._windows
        ]


class _Descent:
    """One read: the way down the pyramid of a key.

    The starts of the windows and the time of the read cut time into segments; `parts` are the partial aggregates of
    these, the longest window's own segment first. A tile within one segment is taken as it is, others are opened.
    `found` tells that there is a contribution at or before the time, `time_us` the time of the last one, if needed.
    """

    __slots__ = (
        "_at_us",
        "_iterator",
        "_prefix",
        "_raw",
        "_reader",
        "_shift",
        "_starts",
        "found",
        "parts",
        "time_us",
    )

    def __init__(self, reader: WindowReader, iterator: RdictIter, prefix: bytes, starts: list[int], at_us: int) -> None:
        self._reader = reader
        self._iterator = iterator
        self._prefix = prefix
        self._starts = starts
        self._at_us = at_us
        self._shift = reader.geometry.shift
        self._raw: list[list[Contribution]] = [[] for _ in starts]
        self.parts = [reader.layout.empty() for _ in starts]
        self.found = False
        self.time_us: int | None = None

    def run(self) -> None:
        """Read the key."""
        iterator = self._iterator
        root_key = self._prefix + ROOT
        iterator.seek(root_key)
        check_end(iterator)
        if not iterator.valid() or iterator.key() != root_key:
            return
        root = unpack(iterator.value())
        count, low, high, flags = root[:4]
        if count and low <= self._at_us:
            self._find_last(high)
            if self.found and self._starts:
                geometry = self._reader.geometry
                self._visit(geometry.level_of(low, high), root)
        if flags & HAS_ENDED:
            self._read_ended()
        add = self._reader.layout.add
        for part, contributions in zip(self.parts, self._raw, strict=True):
            if contributions:
                add(part, contributions)

    def _find_last(self, high: int) -> None:
        """Find out whether there is a contribution by the time of the read, and when the last one is."""
        exact = self._reader.bounds_exact
        if exact and high <= self._at_us:
            self.found, self.time_us = True, high
        elif exact and not self._reader.needs_time:
            self.found = True
        else:
            self._note(self._last_before(RAW))

    def _last_before(self, tag: bytes) -> int | None:
        """Return the time of the last entry at or before the time of the read."""
        iterator, entries = self._iterator, self._prefix + tag
        iterator.seek_for_prev(_from_time(entries, self._at_us + 1))
        check_end(iterator)
        if not iterator.valid():
            return None
        key = iterator.key()
        return _time_of(key, len(entries)) if key.startswith(entries) else None

    def _note(self, time_us: int | None) -> None:
        if time_us is not None:
            self.found = True
            if self.time_us is None or time_us > self.time_us:
                self.time_us = time_us

    def _visit(self, level: int, tile: list[Any]) -> None:
        """Take a tile as a whole, or what of it lies in the segments."""
        low, high, flags = tile[1:4]
        starts, at_us = self._starts, self._at_us
        segment = bisect_right(starts, low) - 1
        if high <= at_us and segment == bisect_right(starts, high) - 1:
            if segment >= 0:
                self.parts[segment].merge_packed(tile)
            return
        first, last = max(low, starts[0]), min(high, at_us)
        if first > last:
            return
        if not flags & SPLIT:
            self._read_raw(first, last)
            return
        for child in self._children(level - 1, first, last):
            self._visit(level - 1, child)

    def _children(self, level: int, first: int, last: int) -> list[list[Any]]:
        """Return the tiles of a level that hold times from `first` to `last`."""
        iterator, shift = self._iterator, self._shift(level)
        end = tile_key(self._prefix, level, (last + SIGN) >> shift)
        iterator.seek(tile_key(self._prefix, level, (first + SIGN) >> shift))
        tiles = []
        while iterator.valid() and iterator.key() <= end:
            tiles.append(unpack(iterator.value()))
            iterator.next()
        check_end(iterator)
        return tiles

    def _read_raw(self, first: int, last: int) -> None:
        """Take single contributions, from `first` to `last`."""
        iterator, decode, values = self._iterator, self._reader.codec.decode_value, self._reader.layout.values
        entries = self._prefix + RAW
        end = _from_time(entries, last + 1)
        iterator.seek(_from_time(entries, first))
        while iterator.valid() and iterator.key() < end:
            record = decode(iterator.value())
            if record.row is not None:
                self._raw[bisect_right(self._starts, record.time) - 1].append((record.time, values(record.row)))
            iterator.next()
        check_end(iterator)

    def _read_ended(self) -> None:
        """Take the contributions that were ended after the time of the read, and note those that were ended by then.

        A read at now finds none of the former: what has an end has it in the past.
        """
        self._note(self._last_before(ENDED))
        iterator, reader = self._iterator, self._reader
        entries = self._prefix + ENDED
        iterator.seek(_from_time(entries, self._at_us + 1))
        while iterator.valid() and iterator.key().startswith(entries):
            record = reader.codec.decode_value(iterator.value())
            if record.time <= self._at_us and record.row is not None:
                self._note(record.time)
                segment = bisect_right(self._starts, record.time) - 1
                if segment >= 0:
                    self._raw[segment].append((record.time, reader.layout.values(record.row)))
            iterator.next()
        check_end(iterator)


def _from_time(entries: bytes, time_us: int) -> bytes:
    """Return the key before all entries at or after a time; behind the last one if there is no such time."""
    if time_us > LAST_TIME_US:
        return entries + b"\xff" * (TIME_BYTES + 1)
    return entries + pack_u64(time_us + SIGN)


def _time_of(key: bytes, position: int) -> int:
    time_us: int = unpack_u64(key, position)[0] - SIGN
    return time_us


def _shortness(window_us: int | None) -> float:
    return float("-inf") if window_us is None else -window_us


Pick = Callable[[list[object], dict[str, object], int | None], object]


def _pick(name: str, plan: IndexPlan, keys: dict[str, int], results: dict[str, Result]) -> Pick:
    """Return what gives a column's value from the key asked for, the results and the time of the last contribution."""
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
