"""Partial aggregates of single values: how often each occurs, and at which positions first and last.

While a tile has few distinct values all of them are kept, so unique counts and quantiles are exact, and lists of
distinct values can be read from the tile. Beyond `Geometry.values` distinct values a sketch replaces the values for
counts and quantiles, and lists are read from the tiles below. A list has to open few tiles, since each tile with a
sketch contributes more than `Geometry.values` distinct values.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from caraway.dataplane.index.aggregates.sketches import REGISTERS, bin_of, distinct_count, element, observe, united

# The position of a value in order of time: its event time in microseconds, and its rank among aggregate inputs of equal
# times.
Position = tuple[int, bytes]

_ENCODE = msgspec.msgpack.Encoder(order="deterministic").encode
_DECODE = msgspec.msgpack.Decoder(list[Any]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesSpec:
    """Settings for keeping the values of a column.

    Values are passed as identities, which are equal exactly if the values are; `restore` makes an identity of what was
    read from a tile. `firsts` and `lasts` say whether the first and last position of each value is kept, `counted`
    whether the number of distinct values is needed. `number` converts an identity to a number; None if no quantiles are
    needed.
    """

    firsts: bool
    lasts: bool
    counted: bool
    number: Callable[[Any], float] | None
    restore: Callable[[Any], Hashable]


class Sketch:
    """The summary that replaces too many values; `bins` and `registers` are None if no aggregate needs them.

    Nulls are in neither of them and are counted in `nulls`.
    """

    __slots__ = ("bins", "nulls", "registers")

    def __init__(self, spec: ValuesSpec) -> None:
        self.registers = bytearray(REGISTERS) if spec.counted else None
        self.bins: dict[int, int] | None = None if spec.number is None else {}
        self.nulls = 0

    def add(self, spec: ValuesSpec, counts: Iterable[tuple[Hashable, int]], sign: int = 1) -> None:
        """Add values, or remove them from the bins; values can't be removed from registers."""
        for value, count in counts:
            if value is None:
                self.nulls += sign * count
                continue
            if self.registers is not None and sign > 0:
                observe(self.registers, _ENCODE(value))
            if self.bins is not None and spec.number is not None:
                _shift(self.bins, bin_of(spec.number(value)), sign * count)

    def merge(
        self, registers: bytes | bytearray | None, bins: Iterable[tuple[int, int]], nulls: int, sign: int = 1
    ) -> None:
        """Add another sketch, or subtract its bins."""
        self.nulls += sign * nulls
        if self.registers is not None and registers is not None and sign > 0:
            self.registers = united(self.registers, registers)
        if self.bins is not None:
            for bin_number, count in bins:
                _shift(self.bins, bin_number, sign * count)


class Values:
    """The values of one column in a tile."""

    __slots__ = ("counts", "firsts", "lasts", "most", "sketch", "spec", "stale")

    def __init__(self, spec: ValuesSpec, most: int | None) -> None:
        """Keep up to `most` distinct values; None means all, unless a sketch is merged."""
        self.spec = spec
        self.most = most
        self.clear()

    def clear(self) -> None:
        """Remove all values."""
        self.counts: dict[Hashable, int] = {}
        self.firsts: dict[Hashable, Position] = {}
        self.lasts: dict[Hashable, Position] = {}
        self.sketch: Sketch | None = None
        self.stale = False

    @property
    def weight(self) -> int:
        """Return the memory of the values as a number of tiles without extras."""
        bins = 0 if self.sketch is None or self.sketch.bins is None else len(self.sketch.bins)
        return (len(self.counts) + bins) // 8 + (0 if self.sketch is None else 4)

    def add(self, occurrences: Iterable[tuple[int, Hashable, bytes]]) -> None:
        """Add values with their times and ranks."""
        counts, firsts, lasts = self.counts, self.firsts, self.lasts
        for time_us, value, order in occurrences:
            if self.sketch is not None:
                self.sketch.add(self.spec, [(value, 1)])
                continue
            counts[value] = counts.get(value, 0) + 1
            position = time_us, order
            if self.spec.firsts and (value not in firsts or position < firsts[value]):
                firsts[value] = position
            if self.spec.lasts and (value not in lasts or position > lasts[value]):
                lasts[value] = position
            if self.most is not None and len(counts) > self.most:
                self._condense()
                counts = self.counts

    def merge(self, other: "Values") -> None:
        """Add the values of `other`."""
        if other.sketch is None:
            self._merge_exact(other.counts.items(), other.firsts.items(), other.lasts.items())
        else:
            sketch = other.sketch
            bins = () if sketch.bins is None else sketch.bins.items()
            self._condensed().merge(sketch.registers, bins, sketch.nulls)

    def subtract(self, other: "Values", left: int) -> bool:
        """Subtract the values of `other`; `left` aggregate inputs remain. Return True to have them computed anew."""
        if self.sketch is not None:
            if other.sketch is None:
                self.sketch.add(self.spec, other.counts.items(), -1)
            else:
                bins = () if other.sketch.bins is None else other.sketch.bins.items()
                self.sketch.merge(None, bins, other.sketch.nulls, -1)
            self.stale = (
                self.stale or self.sketch.registers is not None or (self.most is not None and left <= self.most)
            )
            return self.stale
        counts, firsts, lasts = self.counts, self.firsts, self.lasts
        for value, count in other.counts.items():
            remaining = counts[value] - count
            if not remaining:
                del counts[value]
                firsts.pop(value, None)
                lasts.pop(value, None)
                continue
            counts[value] = remaining
            gone_first = self.spec.firsts and other.firsts[value] == firsts[value]
            gone_last = self.spec.lasts and other.lasts[value] == lasts[value]
            self.stale = self.stale or gone_first or gone_last
        return self.stale

    def merge_packed(self, data: bytes) -> None:
        """Add the values of a packed partial aggregate."""
        exact, values, counts, firsts, lasts = _DECODE(data)
        if not exact:
            self._condensed().merge(values, zip(counts, firsts, strict=True), lasts)
            return
        restored = list(map(self.spec.restore, values))
        self._merge_exact(
            zip(restored, counts, strict=True),
            zip(restored, map(tuple, firsts), strict=True) if firsts else (),
            zip(restored, map(tuple, lasts), strict=True) if lasts else (),
        )

    def pack(self) -> bytes:
        """Return the packed values."""
        if self.sketch is not None:
            bins = self.sketch.bins or {}
            numbers = sorted(bins)
            registers = None if self.sketch.registers is None else bytes(self.sketch.registers)
            return _ENCODE((False, registers, numbers, [bins[number] for number in numbers], self.sketch.nulls))
        firsts = [self.firsts[value] for value in self.counts] if self.spec.firsts else None
        lasts = [self.lasts[value] for value in self.counts] if self.spec.lasts else None
        return _ENCODE((True, list(self.counts), list(self.counts.values()), firsts, lasts))

    def distinct(self, *, nulls: bool) -> int:
        """Return the number of distinct values: exact, or estimated from the sketch."""
        if self.sketch is None:
            return len(self.counts) - (not nulls and None in self.counts)
        if self.sketch.registers is None:
            raise RuntimeError("the number of distinct values wasn't kept")
        return distinct_count(self.sketch.registers) + (nulls and self.sketch.nulls > 0)

    def quantile(self, p: float) -> float | None:
        """Return the element at `floor(p * n)` of the sorted numbers, None if there are none."""
        number = self.spec.number
        if number is None:
            raise RuntimeError("quantiles weren't kept")
        if self.sketch is not None:
            bins = self.sketch.bins or {}
            count = sum(bins.values())
            return element(bins, _quantile_position(p, count)) if count else None
        numbers = [(number(value), count) for value, count in self.counts.items() if value is not None]
        if not numbers:
            return None
        position = _quantile_position(p, sum(count for _, count in numbers))
        for value, count in sorted(numbers, key=_rank):
            position -= count
            if position < 0:
                return value + 0.0
        raise RuntimeError("fewer numbers than counted")

    def _merge_exact(
        self,
        counts: Iterable[tuple[Hashable, int]],
        firsts: Iterable[tuple[Hashable, Position]],
        lasts: Iterable[tuple[Hashable, Position]],
    ) -> None:
        if self.sketch is not None:
            self.sketch.add(self.spec, counts)
            return
        own = self.counts
        for value, count in counts:
            own[value] = own.get(value, 0) + count
        for value, position in firsts:
            known = self.firsts.get(value)
            if known is None or position < known:
                self.firsts[value] = position
        for value, position in lasts:
            known = self.lasts.get(value)
            if known is None or position > known:
                self.lasts[value] = position
        if self.most is not None and len(own) > self.most:
            self._condense()

    def _condensed(self) -> Sketch:
        return self._condense() if self.sketch is None else self.sketch

    def _condense(self) -> Sketch:
        """Replace the values by a sketch, and return it."""
        self.sketch = Sketch(self.spec)
        self.sketch.add(self.spec, self.counts.items())
        self.counts, self.firsts, self.lasts = {}, {}, {}
        return self.sketch


def packed_positions(
    spec: ValuesSpec, data: bytes, *, newest_first: bool
) -> Iterator[tuple[Position, Hashable]] | None:
    """Return packed values in order of their first positions, or of their last ones from the newest on.

    None is returned if a sketch has replaced the values.
    """
    exact, values, _, firsts, lasts = _DECODE(data)
    if not exact:
        return None
    positions = zip(lasts if newest_first else firsts, values, strict=True)
    found = [(tuple(position), spec.restore(value)) for position, value in positions]
    return iter(sorted(found, key=_position, reverse=newest_first))


def _position(item: tuple[Any, Hashable]) -> Any:
    return item[0]


def _shift(bins: dict[int, int], bin_number: int, count: int) -> None:
    left = bins.get(bin_number, 0) + count
    if left:
        bins[bin_number] = left
    else:
        del bins[bin_number]


def _quantile_position(p: float, count: int) -> int:
    return min(count - 1, int(p * count))


def _rank(item: tuple[float, int]) -> tuple[bool, float]:
    """Return a key that sorts NaN behind all numbers."""
    return item[0] != item[0], item[0]
