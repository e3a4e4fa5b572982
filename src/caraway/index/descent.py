"""The way down the pyramid of a key: partial aggregates of several spans of time in one pass."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from caraway.index.entries import Contents, Shape
from caraway.index.layout import Contribution
from caraway.index.partials import SPLIT, Partial
from caraway.index.spans import Span


class Descent:
    """One read of a key.

    The edges of the spans cut time into segments. A tile within one segment is taken as it is, others are opened; what
    lies in no span is left out.
    """

    __slots__ = ("_contents", "_cuts", "_entries", "_needed", "_parts", "_raw", "_shape", "_spans", "_used")

    def __init__(self, shape: Shape, contents: Contents, spans: Sequence[Span], needed: frozenset[int]) -> None:
        """Prepare to read spans, none of them empty.

        Args:
            shape: That of the index.
            contents: What the key has.
            spans: First and last times.
            needed: Which extras of the layout are needed.
        """
        self._shape = shape
        self._contents = contents
        self._entries = contents.entries
        self._needed = needed
        self._spans = spans
        cuts = self._cuts = sorted({edge for first, last in spans for edge in (first, last + 1)})
        self._parts = [shape.layout.total(needed) for _ in cuts[1:]]
        self._raw: list[list[Contribution]] = [[] for _ in self._parts]
        ends = {last for _, last in spans}
        # Spans that all end at one time leave no gap between them.
        self._used = (
            [True] * len(self._parts)
            if len(ends) <= 1
            else [any(first <= cut <= last for first, last in spans) for cut in cuts[:-1]]
        )

    def _descend(self) -> None:
        """Read what the pyramid holds of the spans."""
        root = self._contents.root
        if self._parts and root is not None:
            geometry = self._shape.geometry
            self._visit(geometry.level_of(root[1], root[2]), root)
            add = self._shape.layout.add
            for part, contributions in zip(self._parts, self._raw, strict=True):
                if contributions:
                    add(part, contributions)

    def totals(self) -> Iterator[tuple[Span, Partial]]:
        """Yield each span with its partial aggregate, which is good until the next one."""
        self._descend()
        # What was taken back counts in spans that end before.
        ended = self._contents.ended
        ends = dict.fromkeys(last for _, last in self._spans)
        place = {cut: number for number, cut in enumerate(self._cuts)}
        for last in ends:
            # The shortest span first: each contains the one before.
            firsts = sorted({first for first, end in self._spans if end == last}, reverse=True)
            behind = place[last + 1]
            # The parts of a single end are this reader's own.
            total = self._parts[behind - 1] if len(ends) == 1 else self._shape.layout.total(self._needed)
            shortest = behind - 1 if len(ends) == 1 else behind
            until = last
            for first in firsts:
                begin = place[first]
                for part in self._parts[begin:shortest]:
                    if part.count:
                        total.merge(part)
                shortest = begin
                alive = [e for e in ended if e.end_us > last and first <= e.record.time <= until]
                if alive:
                    values = self._shape.layout.values
                    self._shape.layout.add(total, [(e.record.time, values(e.record), e.order) for e in alive])
                until = first - 1
                yield (first, last), total

    def _visit(self, level: int, tile: Sequence[Any]) -> None:
        """Take a tile as a whole, or what of it lies in the segments."""
        low, high, flags = tile[1:4]
        cuts = self._cuts
        segment = bisect_right(cuts, low) - 1
        if high < cuts[-1] and segment == bisect_right(cuts, high) - 1:
            if segment >= 0 and self._used[segment]:
                self._parts[segment].merge_packed(tile)
            return
        first, last = max(low, cuts[0]), min(high, cuts[-1] - 1)
        if first > last:
            return
        if not flags & SPLIT:
            self._read_raw(first, last)
            return
        for child in self._entries.children(level - 1, first, last):
            self._visit(level - 1, child)

    def _read_raw(self, first: int, last: int) -> None:
        """Take single contributions, from `first` to `last`."""
        values, raw, cuts = self._shape.layout.values, self._raw, self._cuts
        for order, record in self._entries.ranked(first, last):
            if record.row is not None:
                raw[bisect_right(cuts, record.time) - 1].append((record.time, values(record), order))
