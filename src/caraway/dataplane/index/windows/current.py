"""The rows of one group of an aggregated dataset over an interval of time, which an index emits."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from rocksdict import RdictIter

from caraway.dataplane.index.storage.geometry import Geometry
from caraway.dataplane.index.storage.intervals import Interval
from caraway.dataplane.index.storage.keys import CHANGE_POINT, from_time, key_of, time_of
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.index.windows.buckets import BucketReader
from caraway.dataplane.index.windows.sessions import session_by, sessions_from
from caraway.dataplane.index.windows.windows import WindowReader
from caraway.dataplane.topics.codec import RecordCodec
from caraway.graph.plan.model import IndexPlan, TopicPlan
from caraway.graph.windows import HoppingWindow, SessionWindow


class Row(NamedTuple):
    """A row that holds from a time on: the values of the topic's key and of all columns."""

    time_us: int
    key: Sequence[object]
    values: Sequence[object]


# A function that yields the rows of a group that begin to hold in an interval of time, in order of time. Its arguments
# are the store, the prefix of the group's entries, and the interval, whose first and last time are included.
CurrentRows = Callable[[IndexStore, bytes, Interval], Iterator[Row]]

# A function that yields begin and end of each window of a group that ends in an interval of time. Its arguments are
# those of `CurrentRows`.
Bounds = Callable[[IndexStore, bytes, Interval], Iterator[Interval]]


def row_readers(plan: IndexPlan, topic: TopicPlan, geometry: Geometry) -> CurrentRows:
    """Return a function that reads the rows of an index's groups, with the columns of `topic`."""
    columns = [column.name for column in topic.schema.columns]
    keys = len(topic.schema.keys)
    match plan.window:
        case None:
            return partial(_by_change_points, WindowReader(plan, columns, geometry), keys)
        case HoppingWindow(length_us=int(length_us)):
            return partial(_by_window, _Windows(plan, columns, geometry, keys), partial(_buckets, length_us))
        case HoppingWindow() | SessionWindow():
            return partial(_by_window, _Windows(plan, columns, geometry, keys), _sessions)


class _Windows:
    """A reader of the rows of groups by windows."""

    def __init__(self, plan: IndexPlan, columns: Sequence[str], geometry: Geometry, keys: int) -> None:
        self.keys = keys
        self._reader = BucketReader(plan, columns, geometry)
        self._groups = RecordCodec(plan.schema)
        self._keys = RecordCodec.of_keys(plan.keys)

    def read(self, iterator: RdictIter, prefix: bytes, bounds: Interval) -> list[object] | None:
        """Return the row of a group for a window, None if there is none."""
        key = self._keys.encode_key([*self._groups.decode_key(key_of(prefix)), list(bounds)]) or b""
        values, found = self._reader.bound(iterator)(key, bounds[1])
        return values if found else None


def _by_change_points(
    reader: WindowReader, keys: int, store: IndexStore, prefix: bytes, interval: Interval
) -> Iterator[Row]:
    read, group = reader.bound(store.iterator()), key_of(prefix)
    for time_us in _change_points(store, prefix, interval):
        values, found = read(group, time_us)
        if found:
            yield Row(time_us, values[:keys], values)


def _by_window(
    windows: _Windows, bounds: Bounds, store: IndexStore, prefix: bytes, interval: Interval
) -> Iterator[Row]:
    iterator = store.iterator()
    for window in bounds(store, prefix, interval):
        values = windows.read(iterator, prefix, window)
        if values is not None:
            yield Row(window[1], values[: windows.keys], values)


def _change_points(store: IndexStore, prefix: bytes, interval: Interval) -> Iterator[int]:
    entries = prefix + CHANGE_POINT
    for key, _ in store.scan(from_time(entries, interval[0]), from_time(entries, interval[1] + 1)):
        yield time_of(key, len(entries))


def _buckets(length_us: int, store: IndexStore, prefix: bytes, interval: Interval) -> Iterator[Interval]:
    for end_us in _change_points(store, prefix, interval):
        yield end_us - length_us, end_us


def _sessions(store: IndexStore, prefix: bytes, interval: Interval) -> Iterator[Interval]:
    """Yield the sessions that end in an interval of time."""
    iterator = store.iterator()
    first, last = interval
    before = session_by(iterator, prefix, first)
    if before is not None and first <= before.end_us <= last:
        yield before.first_us, before.end_us
    for session in sessions_from(iterator, prefix, first, last):
        if session.end_us > last:
            break
        yield session.first_us, session.end_us
