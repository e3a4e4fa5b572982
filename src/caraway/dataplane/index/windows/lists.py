"""Lists of a column's values over an interval of time: distinct, newest and oldest values.

Values are read one by one in the order of time, from the end at which the list begins, and only as many as needed. A
tile is opened only if necessary. If nulls are dropped, a tile that has only nulls is skipped. A list of distinct values
is read from the tile itself if the tile keeps all of its distinct values.
"""

import heapq
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

from caraway.dataplane.index.aggregates.columns import identity_reader, shower
from caraway.dataplane.index.aggregates.layout import keeps_values
from caraway.dataplane.index.aggregates.partials import SPLIT
from caraway.dataplane.index.aggregates.values import Position, packed_positions
from caraway.dataplane.index.storage.intervals import Interval
from caraway.dataplane.index.windows.entries import Contents, IndexShape, KeyEntries
from caraway.dataplane.topics.codec import Record
from caraway.dtypes.values import same
from caraway.graph.aggregates import TRAITS, AggregateSpec, ValueUse

# The position of a value, and the value itself. In lists of distinct values the second item is the value's identity, a
# hashable object.
Found = tuple[Position, Any]

_POSITION = itemgetter(0)


class ListReader:
    """The reader of one list."""

    def __init__(self, spec: AggregateSpec, shape: IndexShape) -> None:
        layout = shape.layout
        name = spec.of or ""
        self._shape = shape
        self._limit = spec.limit
        self._dropnull = spec.dropnull
        self._newest_first = TRAITS[spec.function].values is ValueUse.LASTS
        self._distinct = keeps_values(spec)
        self._kept = layout.values_of[name] if self._distinct else None
        self._values_spec = None if self._kept is None else layout.values_spec(self._kept)
        self._counted = layout.plain_of.get(name) if spec.dropnull else None
        self._pick = _picker(shape, name)
        self._identity = identity_reader(name, layout.types[name])
        self._show = shower(layout.types[name]) if self._distinct else same

    def read(self, contents: Contents, interval: Interval) -> list[object]:
        """Return the list over an interval, from the contents of a key."""
        found: Iterator[Found] = iter(())
        if contents.root is not None:
            found = self._walk(contents.entries, contents.root, interval)
        alive = sorted(
            (
                ((e.record.time, e.order), self._value(e.record))
                for e in contents.ended
                if e.end_us > interval[1] and interval[0] <= e.record.time <= interval[1]
            ),
            key=_POSITION,
            reverse=self._newest_first,
        )
        if alive:
            found = heapq.merge(found, alive, key=_POSITION, reverse=self._newest_first)
        values: Iterator[Any] = (value for _, value in found if value is not None or not self._dropnull)
        if self._distinct:
            values = map(self._show, _once(values))
        return list(islice(values, self._limit))

    def _value(self, record: Record) -> Any:
        value = self._pick(record)
        return self._identity(value) if self._distinct else value

    def _walk(self, entries: KeyEntries, root: Sequence[Any], interval: Interval) -> Iterator[Found]:
        geometry = self._shape.geometry
        if not self._distinct and self._counted is None:
            return self._raw(entries, *interval)
        return self._of_tile(entries, geometry.level_of(root[1], root[2]), root, interval)

    def _of_tile(self, entries: KeyEntries, level: int, tile: Sequence[Any], interval: Interval) -> Iterator[Found]:
        low, high, flags = tile[1:4]
        first, last = max(low, interval[0]), min(high, interval[1])
        if first > last or (self._counted is not None and not tile[4][self._counted][0][0]):
            return
        if self._kept is not None and self._values_spec is not None and low >= interval[0] and high <= interval[1]:
            kept = packed_positions(self._values_spec, tile[5][self._kept], newest_first=self._newest_first)
            if kept is not None:
                yield from kept
                return
        if not flags & SPLIT:
            yield from self._raw(entries, first, last)
            return
        children = entries.children(level - 1, first, last)
        for child in reversed(children) if self._newest_first else children:
            yield from self._of_tile(entries, level - 1, child, interval)

    def _raw(self, entries: KeyEntries, first: int, last: int) -> Iterator[Found]:
        walk = entries.ranked_backwards if self._newest_first else entries.ranked
        for order, record in walk(first, last):
            yield (record.time, order), self._value(record)


def _picker(shape: IndexShape, name: str) -> Callable[[Record], Any]:
    names = [column.name for column in shape.codec.schema.columns]
    if name not in names:
        # The column is the timestamp, which a record has beside its row.
        return lambda record: record.time
    position = names.index(name)
    return lambda record: None if record.row is None else record.row[position]


def _once(values: Iterator[Hashable]) -> Iterator[Hashable]:
    """Yield each value at its first occurrence."""
    seen: set[Hashable] = set()
    for value in values:
        if value not in seen:
            seen.add(value)
            yield value
