"""A range query of a key: partial aggregates of several intervals of time in one pass down its pyramid."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from caraway.index.aggregates.layout import AggregateInput
from caraway.index.aggregates.partials import SPLIT, Partial
from caraway.index.storage.intervals import Interval
from caraway.index.windows.entries import Contents, Ended, IndexShape


class RangeQuery:
    """One read of a key: the partial aggregates of the segments between some cuts.

    A tile within one segment is used as a whole, others are opened. `parts` are the partial aggregates of the segments.
    """

    __slots__ = ("_cuts", "_entries", "_shape", "_used", "parts")

    def __init__(
        self,
        shape: IndexShape,
        contents: Contents,
        cuts: Sequence[int],
        needed: frozenset[int],
        used: Sequence[bool] | None = None,
    ) -> None:
        """Read the pyramid of a key.

        `cuts` are the first time of each segment, ascending, and the first time behind the last segment. `needed` are
        the extras of the layout that are needed, and `used` says of each segment whether it is (None: all are).
        """
        self._shape = shape
        self._entries = contents.entries
        self._cuts = cuts
        self._used = used
        self.parts = [shape.total(needed) for _ in range(len(cuts) - 1)]
        root = contents.root
        if root is None or not self.parts:
            return
        raw: list[list[AggregateInput]] = [[] for _ in self.parts]
        self._visit(shape.geometry.level_of(root[1], root[2]), root, raw)
        for part, aggregate_inputs in zip(self.parts, raw, strict=True):
            if aggregate_inputs:
                shape.layout.add(part, aggregate_inputs)

    def _visit(self, level: int, tile: Sequence[Any], raw: list[list[AggregateInput]]) -> None:
        """Add a tile as a whole to its segment, or the parts of it to theirs."""
        low, high, flags = tile[1:4]
        cuts = self._cuts
        segment = bisect_right(cuts, low) - 1
        if high < cuts[-1] and segment == bisect_right(cuts, high) - 1:
            if segment >= 0 and (self._used is None or self._used[segment]):
                self.parts[segment].merge_packed(tile)
            return
        first, last = max(low, cuts[0]), min(high, cuts[-1] - 1)
        if first > last:
            return
        if not flags & SPLIT:
            self._entries.scatter(first, last, cuts, raw)
            return
        for child in self._entries.children(level - 1, first, last):
            self._visit(level - 1, child, raw)


def totals_of(
    shape: IndexShape, contents: Contents, intervals: Sequence[Interval], needed: frozenset[int]
) -> Iterator[tuple[Interval, Partial]]:
    """Yield non-empty intervals with their partial aggregates; each partial aggregate is valid until the next one."""
    cuts = sorted({edge for first, last in intervals for edge in (first, last + 1)})
    used = [any(first <= cut <= last for first, last in intervals) for cut in cuts[:-1]]
    parts = RangeQuery(shape, contents, cuts, needed, used).parts
    position = {cut: number for number, cut in enumerate(cuts)}
    for last in dict.fromkeys(last for _, last in intervals):
        total = shape.total(needed)
        behind, until = position[last + 1], last
        # Intervals with the same end are handled from the shortest to the longest. Each contains the one before, so
        # only the parts before that one are added to the total.
        for first in sorted({first for first, end in intervals if end == last}, reverse=True):
            for part in parts[position[first] : behind]:
                if part.count:
                    total.merge(part)
            add_ended(shape, total, contents.ended, (first, until), last)
            behind, until = position[first], first - 1
            yield (first, last), total


def add_ended(shape: IndexShape, total: Partial, ended: Sequence[Ended], interval: Interval, as_of_us: int) -> None:
    """Add the aggregate inputs of an interval that ended after a time, and so still count at that time."""
    first, last = interval
    alive = [item for item in ended if item.end_us > as_of_us and first <= item.record.time <= last]
    if alive:
        values = shape.layout.values
        shape.layout.add(total, [(item.record.time, values(item.record), item.order) for item in alive])
