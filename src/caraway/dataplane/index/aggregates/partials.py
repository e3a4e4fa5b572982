"""Partial aggregates: the content of a tile."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import msgspec

from caraway.dataplane.index.aggregates.columns import Family
from caraway.dataplane.index.aggregates.decay import DecayedSum
from caraway.dataplane.index.aggregates.values import Values
from caraway.process.exact_sums import Moments, packed_int, unpacked_int

# ruff: noqa: PLR1730 - these comparisons take most of the time, and a call would take three times as long

# The least and the greatest event time of a tile without aggregate inputs. Each is the opposite extreme of int64, so
# the first aggregate input that is added replaces both.
NO_LOW, NO_HIGH = (1 << 63) - 1, -(1 << 63)

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(list[Any]).decode

SPLIT = 1
HAS_ENDED = 2


# A summary of a column for the aggregates that can't be computed from sums and bounds: the single values and how often
# each occurs, or a decayed sum.
Extra = Values | DecayedSum


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatedColumn:
    """A column that aggregates read: its position in the row, and which sums and bounds are kept of it.

    A decimal is summed as a number of its smallest units, of which `unit` (10**scale) make the number one; `unit` is 1
    for all other types.
    """

    name: str
    position: int
    family: Family
    unit: int
    sums: bool
    squares: bool
    extremes: bool


class ColumnPartial(Moments):
    """The values of one column: their moments, the least and the greatest.

    NaN counts as greater than all other floats (as in Spark); `least` and `greatest` leave it out.
    """

    __slots__ = ("greatest", "least")

    def __init__(self) -> None:
        super().__init__()
        self.least: float | None = None
        self.greatest: float | None = None

    @classmethod
    def restored(cls, moments: Sequence[Any], least: Any, greatest: Any) -> "ColumnPartial":
        """Return the values of a column in a packed tile."""
        partial = cls()
        partial.restore(moments)
        partial.least, partial.greatest = unpacked_int(least), unpacked_int(greatest)
        return partial

    def add(self, column: AggregatedColumn, values: Sequence[Any]) -> None:
        """Add values of the column, none of them null."""
        if column.sums:
            if column.family is Family.FLOAT:
                self.add_floats(values, squares=column.squares)
            else:
                self.add_ints(values, squares=column.squares)
        else:
            self.count += len(values)
        if column.extremes:
            if column.family is Family.FLOAT:
                numbers = [value for value in values if not isnan(value)]
                if not column.sums:
                    self.nans += len(values) - len(numbers)
                values = numbers
            if values:
                self.widen(min(values), max(values))

    def add_one(self, column: AggregatedColumn, value: Any) -> None:
        """Add a value of the column that isn't null; `add` with one value does the same."""
        is_float = column.family is Family.FLOAT
        if not column.sums:
            self.count += 1
        elif is_float:
            self.add_float(value, squares=column.squares)
        else:
            self.add_ints((value,), squares=column.squares)
        if column.extremes:
            if is_float and isnan(value):
                self.nans += not column.sums
            else:
                self.widen(value, value)

    def widen(self, least: float, greatest: float) -> None:
        """Extend the bounds by those of further values."""
        if self.least is None or self.greatest is None:
            self.least, self.greatest = least, greatest
            return
        if least < self.least:
            self.least = least
        if greatest > self.greatest:
            self.greatest = greatest

    def widen_by(self, other: "ColumnPartial") -> None:
        """Extend the bounds by those of another partial aggregate."""
        if other.least is not None and other.greatest is not None:
            self.widen(other.least, other.greatest)


class Partial:
    """The partial aggregate of some aggregate inputs.

    `low` and `high` bound their event times, not always tightly after a removal. `columns` and `extras` are those of
    the layout; an extra is None if a read doesn't need it. The flag `SPLIT` says that tiles one level below contain the
    same aggregate inputs, divided; the flag `HAS_ENDED`, for roots only, that the key has aggregate inputs with an end.
    """

    __slots__ = ("columns", "count", "extras", "flags", "high", "low", "noted_weight")

    def __init__(self, columns: list[ColumnPartial], extras: Sequence[Extra | None] = ()) -> None:
        self.count = 0
        self.low = NO_LOW
        self.high = NO_HIGH
        self.flags = 0
        self.columns = columns
        self.extras = extras
        self.noted_weight = 0

    @classmethod
    def restored(cls, packed: Sequence[Any]) -> "Partial":
        """Return the tile in the form that `unpack` returns, if its layout has no extras."""
        partial = cls([ColumnPartial.restored(*column) for column in packed[4]])
        partial.count, partial.low, partial.high, partial.flags = packed[0], packed[1], packed[2], packed[3]
        return partial

    def merge(self, other: "Partial") -> None:
        """Add the aggregate inputs of `other`."""
        self.count += other.count
        if other.low < self.low:
            self.low = other.low
        if other.high > self.high:
            self.high = other.high
        for mine, theirs in zip(self.columns, other.columns, strict=True):
            mine.merge(theirs)
            mine.widen_by(theirs)
        if self.extras:
            self._merge_extras(other)

    def subtract(self, other: "Partial") -> bool:
        """Subtract the aggregate inputs of `other`. Return True if something has to be computed anew (`find_anew`)."""
        self.count -= other.count
        stale = False
        for mine, theirs in zip(self.columns, other.columns, strict=True):
            mine.subtract(theirs)
            if theirs.least is None or theirs.greatest is None or mine.least is None or mine.greatest is None:
                continue
            if self.count == 0:
                mine.least = mine.greatest = None
            elif theirs.least <= mine.least or theirs.greatest >= mine.greatest:
                stale = True
        for own, others in zip(self.extras, other.extras, strict=True):
            if own is not None and others is not None:
                stale = own.subtract(others, self.count) or stale  # type: ignore[arg-type]
        return stale

    def find_anew(self, parts: Sequence["Partial"]) -> None:
        """Compute bounds and extras that couldn't be subtracted, from partial aggregates of all aggregate inputs."""
        for position, column in enumerate(self.columns):
            column.least = column.greatest = None
            for part in parts:
                column.widen_by(part.columns[position])
        stale = [extra is not None and extra.stale for extra in self.extras]
        for position, extra in enumerate(self.extras):
            if extra is not None and stale[position]:
                extra.clear()
                for part in parts:
                    extra.merge(part.extras[position])  # type: ignore[arg-type]

    def merge_packed(self, tiles: Sequence[Sequence[Any]]) -> None:
        """Add partial aggregates, at least one, in the form that `unpack` returns."""
        for tile in tiles:
            self.count += tile[0]
            if tile[1] < self.low:
                self.low = tile[1]
            if tile[2] > self.high:
                self.high = tile[2]
        for position, column in enumerate(self.columns):
            packed = [tile[4][position] for tile in tiles]
            column.merge_packed([moments for moments, _, _ in packed])
            for _, least, greatest in packed:
                if type(least) is bytes or type(greatest) is bytes:
                    column.widen(unpacked_int(least), unpacked_int(greatest))
                elif least is not None:
                    column.widen(least, greatest)
        for position, extra in enumerate(self.extras):
            if extra is not None:
                for tile in tiles:
                    extra.merge_packed(tile[5][position])

    def pack(self) -> bytes:
        """Return the bytes of a tile."""
        columns: list[Any] = [(c.pack(), c.least, c.greatest) for c in self.columns]
        further = [[extra.pack() for extra in self.extras if extra is not None]] if self.extras else []
        try:
            return _ENCODE((self.count, self.low, self.high, self.flags, columns, *further))
        except OverflowError:
            # A decimal of more than 18 digits is an integer of its smallest units, which may need more than 64 bits.
            # MessagePack has no such integers, so the bounds are packed as bytes.
            columns = [(c.pack(), _packed_bound(c.least), _packed_bound(c.greatest)) for c in self.columns]
            return _ENCODE((self.count, self.low, self.high, self.flags, columns, *further))

    @property
    def weight(self) -> int:
        """Return the memory of the tile as a number of tiles without extras."""
        return 1 + sum([extra.weight for extra in self.extras if extra is not None]) if self.extras else 1

    def _merge_extras(self, other: "Partial") -> None:
        for mine, theirs in zip(self.extras, other.extras, strict=True):
            if mine is not None:
                mine.merge(theirs)  # type: ignore[arg-type]


def _packed_bound(value: Any) -> Any:
    return packed_int(value) if type(value) is int else value


def unpack(data: bytes) -> list[Any]:
    """Return a tile's content: count, low, high, flags, columns (each: moments, least, greatest), bytes of extras."""
    return _DECODE(data)
