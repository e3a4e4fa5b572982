"""The entries of one key in one state of the database."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from rocksdict import RdictIter

from caraway.dataplane.index.aggregates.layout import Layout
from caraway.dataplane.index.aggregates.partials import unpack
from caraway.dataplane.index.storage.database import check_end
from caraway.dataplane.index.storage.geometry import Geometry
from caraway.dataplane.index.storage.keys import ENDED, RAW, ROOT, SIGN, TIME_BYTES, from_time, tile_key, time_of
from caraway.dataplane.topics.codec import Record, RecordCodec
from caraway.graph.plan.model import IndexPlan


class IndexShape:
    """The properties that all keys of an index share."""

    def __init__(self, plan: IndexPlan, geometry: Geometry) -> None:
        self.geometry = geometry
        self.codec = RecordCodec(plan.schema)
        self.layout = Layout(plan, geometry.values)
        self.total = self.layout.total
        # True if a root's stored event times are exactly the least and the greatest of its aggregate inputs. If records
        # may be revised, aggregate inputs are removed, and the stored times may be further apart than those that
        # remain.
        self.bounds_exact = not plan.revised


class Entry(NamedTuple):
    """An aggregate input: its rank among those of equal times, and its record."""

    order: bytes
    record: Record


class Ended(NamedTuple):
    """An aggregate input that a delete ended, and the time of its end."""

    end_us: int
    order: bytes
    record: Record


class Inputs(NamedTuple):
    """Some aggregate inputs in order of time: their times, the columns that the layout reads, and their ranks.

    If the layout has no extras, nothing depends on ranks, and there are none.
    """

    times: Sequence[int]
    columns: Sequence[Sequence[object]]
    orders: Sequence[bytes]

    def between(self, first: int, last: int) -> "Inputs":
        """Return those from `first` to `last`."""
        times, columns, orders = self
        start, end = bisect_left(times, first), bisect_right(times, last)
        return Inputs(times[start:end], [column[start:end] for column in columns], orders[start:end])

    def followed_by(self, later: "Inputs") -> "Inputs":
        """Return these aggregate inputs, with those of `later` behind them."""
        columns = [[*ours, *theirs] for ours, theirs in zip(self.columns, later.columns, strict=True)]
        return Inputs([*self.times, *later.times], columns, [*self.orders, *later.orders])


class KeyEntries:
    """A reader of the entries of a key. It moves the iterator that it is given."""

    __slots__ = ("_prefix", "_shape", "iterator")

    def __init__(self, shape: IndexShape, iterator: RdictIter, prefix: bytes) -> None:
        self._shape = shape
        self.iterator = iterator
        self._prefix = prefix

    def root(self) -> list[Any] | None:
        """Return the root's content, None if the key has none."""
        iterator, root_key = self.iterator, self._prefix + ROOT
        iterator.seek(root_key)
        check_end(iterator)
        if not iterator.valid() or iterator.key() != root_key:
            return None
        return unpack(iterator.value())

    def last_time(self, time_us: int) -> int | None:
        """Return the time of the last aggregate input at or before a time."""
        iterator, entries = self.iterator, self._prefix + RAW
        iterator.seek_for_prev(from_time(entries, time_us + 1))
        check_end(iterator)
        if not iterator.valid():
            return None
        key = iterator.key()
        return time_of(key, len(entries)) if key.startswith(entries) else None

    def first_time(self, time_us: int) -> int | None:
        """Return the time of the first aggregate input at or after a time."""
        iterator, entries = self.iterator, self._prefix + RAW
        iterator.seek(from_time(entries, time_us))
        check_end(iterator)
        if not iterator.valid():
            return None
        key = iterator.key()
        return time_of(key, len(entries)) if key.startswith(entries) else None

    def children(self, level: int, first: int, last: int) -> list[list[Any]]:
        """Return the tiles of a level that contain times from `first` to `last`."""
        iterator, shift = self.iterator, self._shape.geometry.shift(level)
        end = tile_key(self._prefix, level, (last + SIGN) >> shift)
        iterator.seek(tile_key(self._prefix, level, (first + SIGN) >> shift))
        tiles = []
        while iterator.valid() and iterator.key() <= end:
            tiles.append(unpack(iterator.value()))
            iterator.next()
        check_end(iterator)
        return tiles

    def inputs(self, first: int, last: int) -> Inputs:
        """Return the aggregate inputs from `first` to `last`."""
        iterator, layout = self.iterator, self._shape.layout
        entries = self._prefix + RAW
        end = from_time(entries, last + 1)
        iterator.seek(from_time(entries, first))
        keys, values = [], []
        while iterator.valid() and (key := iterator.key()) < end:
            keys.append(key)
            values.append(iterator.value())
            iterator.next()
        check_end(iterator)
        # The raw entries of an index are all puts, so all are decoded together by a decoder that accepts only puts.
        records = self._shape.codec.decode_puts(values)
        times = [record.time for record in records]
        rank = len(entries) + TIME_BYTES
        orders = [key[rank:] for key in keys] if layout.extras else []
        return Inputs(times, layout.columns_of_rows([record.row for record in records], times), orders)

    def ranked(self, first: int, last: int) -> Iterator[Entry]:
        """Yield the aggregate inputs from `first` to `last`, oldest first. The caller must not move the iterator."""
        iterator, decode = self.iterator, self._shape.codec.decode_value
        entries = self._prefix + RAW
        rank = len(entries) + TIME_BYTES
        end = from_time(entries, last + 1)
        iterator.seek(from_time(entries, first))
        while iterator.valid() and (key := iterator.key()) < end:
            yield Entry(key[rank:], decode(iterator.value()))
            iterator.next()
        check_end(iterator)

    def ranked_backwards(self, first: int, last: int) -> Iterator[Entry]:
        """Yield the aggregate inputs from `first` to `last` newest first; see `ranked`."""
        iterator, decode = self.iterator, self._shape.codec.decode_value
        entries = self._prefix + RAW
        rank = len(entries) + TIME_BYTES
        start = from_time(entries, first)
        iterator.seek_for_prev(from_time(entries, last + 1))
        while iterator.valid() and (key := iterator.key()) >= start:
            yield Entry(key[rank:], decode(iterator.value()))
            iterator.prev()
        check_end(iterator)

    def ended_after(self, time_us: int) -> Iterator[Ended]:
        """Return the aggregate inputs that ended after a time, in order of their ends; see `ranked`."""
        self.iterator.seek(from_time(self._prefix + ENDED, time_us + 1))
        return self._ended(self.iterator.next)

    def ended_by(self, time_us: int) -> Iterator[Ended]:
        """Return the aggregate inputs that ended at or before a time, the last one first; see `ranked`."""
        self.iterator.seek_for_prev(from_time(self._prefix + ENDED, time_us + 1))
        return self._ended(self.iterator.prev)

    def _ended(self, step: Callable[[], None]) -> Iterator[Ended]:
        iterator, decode = self.iterator, self._shape.codec.decode_value
        entries = self._prefix + ENDED
        rank = len(entries) + TIME_BYTES
        while iterator.valid() and (key := iterator.key()).startswith(entries):
            yield Ended(time_of(key, len(entries)), key[rank:], decode(iterator.value()))
            step()
        check_end(iterator)


class Contents(NamedTuple):
    """The entries of a key that a read uses.

    `root` is None if the pyramid has nothing in the intervals; `ended` are the aggregate inputs that ended after the
    earliest end of the intervals.
    """

    entries: KeyEntries
    root: Sequence[Any] | None
    ended: Sequence[Ended]
