"""Sums of decayed values: `v * 2**(-(T - t) / half_life)`, for any time T of a read.

Time is counted in half-lives since the epoch. The weight of a value is the float `v * 2**f`, where f in (-1, 0] is the
fraction of its time; the whole half-lives are a power of two. A sum is therefore an integer times a power of two: it is
as exact as sums of floats are (`caraway.process.exact_sums`), doesn't depend on the order of the values, and is
decayed once, when it is read.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from caraway.process.exact_sums import packed_int

SECOND_US = 1_000_000
# A decayed sum whose magnitude is below e^-25 is returned as 0. The engine that runs pipelines inside a Python process
# (`caraway.compute.reference`) has the same rule, so both return equal results.
NOTHING_LEFT = math.exp(-25)
# The bits of a sum that are worth less than 2^-256 at the time of its newest value are cut off. A result that isn't
# returned as 0 is at least 2^-37, and a float has 53 bits, so the missing bits are far below its last digit.
KEPT_BITS = 256
# A number above 2^1100 or below 2^-1100 in magnitude is outside the range of floats, which ends at 2^1024 and 2^-1074.
_LARGEST, _SMALLEST = 1100, -1100

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(list[Any]).decode


class DecayedSum:
    """The sum of the values of a tile: `total * 2**exponent` at the epoch.

    `newest` is the time of the newest value, in half-lives rounded up. Bits below `2**(newest - KEPT_BITS)` are cut
    off; `cut` is set once any were. Infinities and NaN are counted separately.
    """

    __slots__ = ("cut", "exponent", "half_life_us", "infinities", "nans", "negative", "newest", "stale", "total")

    def __init__(self, half_life_us: int) -> None:
        self.half_life_us = half_life_us
        self.clear()

    def clear(self) -> None:
        """Remove all values."""
        self.total = 0
        self.exponent = 0
        self.newest: int | None = None
        self.cut = self.stale = False
        self.infinities = self.negative = self.nans = 0

    @property
    def weight(self) -> int:
        """Return the memory of the sum as a number of tiles without extras; zero, since it is small."""
        return 0

    def add(self, occurrences: Iterable[tuple[int, float | None, bytes]]) -> None:
        """Add values with their times."""
        for time_us, value, _ in occurrences:
            if value is None:
                continue
            if not math.isfinite(value):
                self._count_specials((value > 0, value < 0, math.isnan(value)), 1)
                continue
            second_us = time_us // SECOND_US * SECOND_US
            whole = -(-second_us // self.half_life_us)
            rest_us = second_us - whole * self.half_life_us
            numerator, denominator = (value * 2.0 ** (rest_us / self.half_life_us)).as_integer_ratio()
            self._shift(numerator, whole - denominator.bit_length() + 1, whole)

    def merge(self, other: "DecayedSum") -> None:
        """Add the values of another sum."""
        self._merge(other, 1)

    def subtract(self, other: "DecayedSum", left: int) -> bool:
        """Subtract a sum; `left` aggregate inputs remain. Return True if the rest has to be computed anew."""
        if other.newest is None and not (other.infinities or other.negative or other.nans):
            return self.stale
        # Bits that were cut off from one of the sums can't be subtracted. If the newest value is removed, bits may have
        # been cut off that the sum of the other values still has. In both cases the sum is computed anew from the
        # values that remain.
        if left == 0:
            self.clear()
        elif self.cut or other.cut or other.newest == self.newest:
            self.stale = True
        else:
            self._merge(other, -1)
        return self.stale

    def merge_packed(self, data: bytes) -> None:
        """Add the values of a packed sum."""
        newest, exponent, total, cut, specials = _DECODE(data)
        if newest is not None:
            self._shift(int.from_bytes(total, signed=True) if type(total) is bytes else total, exponent, newest)
        self.cut = self.cut or cut
        if specials:
            self._count_specials(specials, 1)

    def pack(self) -> bytes:
        """Return the packed sum."""
        if self.total and not self.total & 1:
            bits = (self.total & -self.total).bit_length() - 1
            self.total >>= bits
            self.exponent += bits
        specials = (self.infinities, self.negative, self.nans)
        packed = self.newest, self.exponent, packed_int(self.total), self.cut, specials if any(specials) else None
        return _ENCODE(packed)

    def at(self, at_us: int) -> float:
        """Return the sum, decayed to the time of a read."""
        if self.nans or (self.infinities and self.negative):
            return math.nan
        if self.infinities or self.negative:
            return math.inf if self.infinities else -math.inf
        whole, rest_us = divmod(at_us, self.half_life_us)
        # The sum is scaled down to the next whole half-life, then multiplied by at most 2. In the other order a large
        # sum would overflow the range of floats in between.
        value = _scaled(self.total, self.exponent - whole - 1) * 2.0 ** (1 - rest_us / self.half_life_us)
        return 0.0 if abs(value) < NOTHING_LEFT else value

    def _merge(self, other: "DecayedSum", sign: int) -> None:
        if other.newest is not None:
            self._shift(sign * other.total, other.exponent, other.newest)
        self.cut = self.cut or other.cut
        self._count_specials((other.infinities, other.negative, other.nans), sign)

    def _shift(self, total: int, exponent: int, newest: int) -> None:
        """Add `total * 2**exponent`, after cutting off the bits that are too small beside the newest value."""
        if self.newest is None or newest > self.newest:
            self.newest = newest
        least = self.newest - KEPT_BITS
        self.total, self.exponent = self._trimmed(self.total, self.exponent, least)
        total, exponent = self._trimmed(total, exponent, least)
        if not self.total:
            self.total, self.exponent = total, exponent
        elif total:
            spare = exponent - self.exponent
            if spare < 0:
                self.total <<= -spare
                self.exponent = exponent
                spare = 0
            self.total += total << spare

    def _trimmed(self, total: int, exponent: int, least: int) -> tuple[int, int]:
        bits = least - exponent
        if bits <= 0 or not total:
            return total, exponent
        if bits > total.bit_length():
            self.cut = True
            return 0, least
        kept = total >> bits
        self.cut = self.cut or kept << bits != total
        return kept, least

    def _count_specials(self, specials: Sequence[int], sign: int) -> None:
        self.infinities += sign * specials[0]
        self.negative += sign * specials[1]
        self.nans += sign * specials[2]


def _scaled(total: int, exponent: int) -> float:
    """Return `total * 2**exponent`, rounded once; infinite above the range of floats, zero below it."""
    size = total.bit_length() + exponent
    if not total or size < _SMALLEST:
        return 0.0
    if size > _LARGEST:
        return math.inf if total > 0 else -math.inf
    try:
        return float(total << exponent) if exponent >= 0 else total / (1 << -exponent)
    except OverflowError:
        return math.inf if total > 0 else -math.inf
