"""A range query of a key: the partial aggregates of several intervals of time, in one pass down its pyramid."""

from collections.abc import Iterator, Sequence
from typing import Any

from caraway.dataplane.index.aggregates.partials import SPLIT, Partial
from caraway.dataplane.index.storage.intervals import Interval
from caraway.dataplane.index.windows.entries import Contents, Ended, IndexShape, Inputs


class RangeQuery:
    """One read of a key: for each interval the largest tiles within it, and the aggregate inputs at its edges.

    A tile is opened only for the intervals that cut it, and only as far as these reach. All others use it as a whole.
    So the content of an interval doesn't depend on the intervals that are read with it.
    """

    __slots__ = ("_entries", "_intervals", "_shape", "inputs", "tiles")

    def __init__(self, shape: IndexShape, contents: Contents, intervals: Sequence[Interval]) -> None:
        """Read the pyramid of a key."""
        self._shape = shape
        self._entries = contents.entries
        self._intervals = intervals
        self.tiles: list[list[Sequence[Any]]] = [[] for _ in intervals]
        self.inputs: list[Inputs | None] = [None] * len(intervals)
        root = contents.root
        if root is not None:
            self._visit(shape.geometry.level_of(root[1], root[2]), (root,), range(len(intervals)))

    def _visit(self, level: int, tiles: Sequence[Sequence[Any]], positions: Sequence[int]) -> None:
        """Add tiles of a level, or the parts of them that count, to the intervals at `positions`."""
        intervals, found = self._intervals, self.tiles
        for tile in tiles:
            low, high = tile[1], tile[2]
            cutting = []
            for position in positions:
                first, last = intervals[position]
                if first <= low and high <= last:
                    found[position].append(tile)
                elif first <= high and low <= last:
                    cutting.append(position)
            if cutting:
                self._open(level, tile, cutting)

    def _open(self, level: int, tile: Sequence[Any], cutting: Sequence[int]) -> None:
        """Add the content of a tile to the intervals at `cutting`, which have a part of it."""
        intervals, low, high = self._intervals, tile[1], tile[2]
        first, last = intervals[cutting[0]]
        for position in cutting[1:]:
            start, end = intervals[position]
            first, last = min(first, start), max(last, end)
        first, last = max(first, low), min(last, high)
        if tile[3] & SPLIT:
            self._visit(level - 1, self._entries.children(level - 1, first, last), cutting)
            return
        found = self._entries.inputs(first, last)
        for position in cutting:
            part = found if len(cutting) == 1 else found.between(*intervals[position])
            known = self.inputs[position]
            self.inputs[position] = part if known is None else known.followed_by(part)


def totals_of(
    shape: IndexShape, contents: Contents, intervals: Sequence[Interval], needed: frozenset[int]
) -> Iterator[Partial]:
    """Yield the partial aggregate of each interval, with the extras of the layout that are `needed`."""
    query = RangeQuery(shape, contents, intervals)
    if contents.ended:
        for interval, tiles, inputs in zip(intervals, query.tiles, query.inputs, strict=True):
            total = _total(shape, needed, tiles, inputs)
            _add_ended(shape, total, contents.ended, interval)
            yield total
        return
    # All windows that are longer than the history of a key have the same content, its root. So these share one partial
    # aggregate, from which results only read.
    of_tiles: Partial | None = None
    before: Sequence[Sequence[Any]] = ()
    for tiles, inputs in zip(query.tiles, query.inputs, strict=True):
        if inputs is not None and inputs.times:
            yield _total(shape, needed, tiles, inputs)
            continue
        if of_tiles is None or tiles != before:
            of_tiles, before = _total(shape, needed, tiles, None), tiles
        yield of_tiles


def _total(shape: IndexShape, needed: frozenset[int], tiles: Sequence[Sequence[Any]], inputs: Inputs | None) -> Partial:
    """Return the partial aggregate of some tiles and of single inputs."""
    total = shape.total(needed)
    if tiles:
        total.merge_packed(tiles)
    if inputs is not None and inputs.times:
        shape.layout.add_columns(total, *inputs)
    return total


def _add_ended(shape: IndexShape, total: Partial, ended: Sequence[Ended], interval: Interval) -> None:
    """Add the aggregate inputs of an interval that ended after it, and so still count at its last time."""
    first, last = interval
    alive = [item for item in ended if item.end_us > last and first <= item.record.time <= last]
    if alive:
        values = shape.layout.values
        shape.layout.add(total, [(item.record.time, values(item.record), item.order) for item in alive])
