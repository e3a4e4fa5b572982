"""Exact sums, means and standard deviations of ints and floats.

A float is a dyadic rational, `m * 2**e`. A sum of floats is therefore one integer and one exponent, without any
rounding: it doesn't depend on the order of the values, partial sums can be merged, and subtracting a value leaves no
residue. Only the result is rounded. Ints are the case of exponent 0.

The results are the true values, rounded to floats once (IEEE 754, half to even). `statistics.pstdev` of the standard
library computes the same standard deviation from the single values; the method for the square root is taken from it.
"""

import math
from collections.abc import Sequence
from math import isfinite
from typing import Any, Self

# Signed integers of MessagePack have 63 bits besides the sign; longer ints are packed as bytes.
_MSGPACK_BITS = 63

Packed = list[Any]


class Moments:
    """Number, exact sum and exact sum of squares of some values; infinities and NaN are counted apart.

    The sum is `total * 2**exponent`, the sum of squares `squares * 2**(2 * exponent)`; `exponent` is never positive.
    `count` is the number of all values, `infinities`, `negative_infinities` and `nans` those among them.
    """

    __slots__ = ("count", "exponent", "infinities", "nans", "negative_infinities", "squares", "total")

    def __init__(self) -> None:
        self.count = 0
        self.exponent = 0
        self.total = 0
        self.squares = 0
        self.infinities = 0
        self.negative_infinities = 0
        self.nans = 0

    def add_ints(self, values: Sequence[int], *, squares: bool = True) -> None:
        """Add ints, and their squares if wanted. An object has either ints or floats."""
        self.count += len(values)
        self.total += sum(values)
        if squares:
            self.squares += sum([value * value for value in values])

    def add_floats(self, values: Sequence[float], *, squares: bool = True) -> None:
        """Add floats of any kind, and their squares if wanted."""
        self.count += len(values)
        try:
            ratios = [value.as_integer_ratio() for value in values]
        except (OverflowError, ValueError):
            finite = [value for value in values if isfinite(value)]
            for value in values:
                if not isfinite(value):
                    self._add_special(value)
            ratios = [value.as_integer_ratio() for value in finite]
        if not ratios:
            return
        # The denominator of a float is a power of two. The greatest one, 2**bits, is a common denominator of all
        # values.
        bits = max([denominator for _, denominator in ratios]).bit_length() - 1
        if bits > -self.exponent:
            self._extend(-bits)
        scale = 1 << -self.exponent
        numerators = [numerator * (scale // denominator) for numerator, denominator in ratios]
        self.total += sum(numerators)
        if squares:
            self.squares += sum([numerator * numerator for numerator in numerators])

    def add_float(self, value: float, *, squares: bool = True) -> None:
        """Add a float of any kind, and its square if wanted."""
        self.count += 1
        try:
            numerator, denominator = value.as_integer_ratio()
        except (OverflowError, ValueError):
            self._add_special(value)
            return
        bits = denominator.bit_length() - 1
        spare = -self.exponent - bits
        if spare < 0:
            self._extend(-bits)
        elif spare:
            numerator <<= spare
        self.total += numerator
        if squares:
            self.squares += numerator * numerator

    def merge(self, other: "Moments") -> None:
        """Add the values of `other`."""
        total, squares = self._aligned(other)
        self.count += other.count
        self.total += total
        self.squares += squares
        self.infinities += other.infinities
        self.negative_infinities += other.negative_infinities
        self.nans += other.nans

    def subtract(self, other: "Moments") -> None:
        """Subtract values that were added before; afterwards the state is as if they had never been added."""
        total, squares = self._aligned(other)
        self.count -= other.count
        self.total -= total
        self.squares -= squares
        self.infinities -= other.infinities
        self.negative_infinities -= other.negative_infinities
        self.nans -= other.nans

    def sum(self) -> float:
        """Return the sum, correctly rounded; infinite if it is outside the range of floats."""
        special = self._special()
        return _rounded(self.total, 1, self.exponent) if special is None else special

    def mean(self, unit: int = 1) -> float:
        """Return the mean of at least one value, each divided by `unit`, correctly rounded."""
        special = self._special()
        return _rounded(self.total, self.count * unit, self.exponent) if special is None else special

    def stddev(self, unit: int = 1) -> float:
        """Return the population standard deviation of at least one value, each divided by `unit`, correctly rounded."""
        if self.infinities or self.negative_infinities or self.nans:
            return math.nan
        return _rounded_root(self._spread(), (self.count * unit) ** 2, self.exponent)

    def variance(self, unit: int = 1) -> float:
        """Return the population variance of at least one value, each divided by `unit`, correctly rounded."""
        if self.infinities or self.negative_infinities or self.nans:
            return math.nan
        return _rounded(self._spread(), (self.count * unit) ** 2, 2 * self.exponent)

    def pack(self) -> Packed:
        """Return the state as ints of 64 bits and bytes; equal multisets of values have equal states."""
        self._reduce()
        packed: Packed = [self.count, self.exponent, packed_int(self.total), packed_int(self.squares)]
        if self.infinities or self.negative_infinities or self.nans:
            packed += (self.infinities, self.negative_infinities, self.nans)
        return packed

    @classmethod
    def unpack(cls, packed: Packed) -> Self:
        """Return the moments in a packed state."""
        moments = cls()
        moments.restore(packed)
        return moments

    def merge_packed(self, states: Sequence[Packed]) -> None:
        """Add the values of packed states, at least one, without making objects of them."""
        exponent = min([state[1] for state in states])
        if exponent < self.exponent:
            self._extend(exponent)
        exponent = self.exponent
        self.count += sum([state[0] for state in states])
        for state in states:
            total, squares, spare = state[2], state[3], state[1] - exponent
            if type(total) is bytes:
                total = int.from_bytes(total, signed=True)
            if type(squares) is bytes:
                squares = int.from_bytes(squares, signed=True)
            self.total += total << spare
            self.squares += squares << 2 * spare
            if len(state) > 4:
                self.infinities += state[4]
                self.negative_infinities += state[5]
                self.nans += state[6]

    def restore(self, packed: Sequence[Any]) -> None:
        """Take over a packed state; the object must be new."""
        total, squares = packed[2], packed[3]
        self.count, self.exponent = packed[0], packed[1]
        self.total, self.squares = unpacked_int(total), unpacked_int(squares)
        if len(packed) > 4:
            self.infinities, self.negative_infinities, self.nans = packed[4:]

    def _spread(self) -> int:
        """Return n**2 times the variance, an integer that is never negative by the Cauchy-Schwarz inequality."""
        return self.count * self.squares - self.total * self.total

    def _extend(self, exponent: int) -> None:
        """Change the state to a smaller exponent."""
        bits = self.exponent - exponent
        self.total <<= bits
        self.squares <<= 2 * bits
        self.exponent = exponent

    def _aligned(self, other: "Moments") -> tuple[int, int]:
        """Return sum and squares of `other` for the smaller of both exponents, to which this state changes too."""
        spare = other.exponent - self.exponent
        if spare < 0:
            self._extend(other.exponent)
            spare = 0
        return other.total << spare, other.squares << (2 * spare)

    def _reduce(self) -> None:
        """Make the exponent as great as possible, which is the canonical form of the state."""
        if not self.exponent:
            return
        bits = -self.exponent
        if self.total:
            bits = min(bits, _trailing_zeros(self.total))
        if self.squares:
            bits = min(bits, _trailing_zeros(self.squares) // 2)
        if bits:
            self.total >>= bits
            self.squares >>= 2 * bits
            self.exponent += bits

    def _add_special(self, value: float) -> None:
        if value > 0:
            self.infinities += 1
        elif value < 0:
            self.negative_infinities += 1
        else:
            self.nans += 1

    def _special(self) -> float | None:
        """Return the sum if infinities or NaN determine it; None otherwise."""
        if self.nans or (self.infinities and self.negative_infinities):
            return math.nan
        if self.infinities:
            return math.inf
        return -math.inf if self.negative_infinities else None


def packed_int(value: int) -> int | bytes:
    """Return an int as MessagePack can hold it: itself if 64 bits are enough, otherwise its two's complement."""
    bits = value.bit_length()
    return value if bits <= _MSGPACK_BITS else value.to_bytes(bits // 8 + 1, signed=True)


def unpacked_int(value: Any) -> Any:
    """Return the int that `packed_int` returned as bytes, and any other value itself."""
    return int.from_bytes(value, signed=True) if type(value) is bytes else value


def _trailing_zeros(value: int) -> int:
    return (value & -value).bit_length() - 1


def _rounded(numerator: int, denominator: int, exponent: int) -> float:
    """Round `numerator / denominator * 2**exponent` to a float; `exponent` <= 0. Division of ints rounds once."""
    try:
        return numerator / (denominator << -exponent)
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def _rounded_root(numerator: int, denominator: int, exponent: int) -> float:
    """Round `sqrt(numerator / denominator) * 2**exponent` to a float; `exponent` <= 0.

    Method of CPython's `statistics._float_sqrt_of_frac`: the root is computed to 109 bits or more and rounded to odd,
    so that the second rounding, to a float's 53 bits, can't go wrong.
    """
    if not numerator:
        return 0.0
    denominator <<= -2 * exponent
    scale = (numerator.bit_length() - denominator.bit_length() - 109) // 2
    if scale >= 0:
        return _divided(_root_to_odd(numerator, denominator << 2 * scale) << scale, 1)
    return _divided(_root_to_odd(numerator << -2 * scale, denominator), 1 << -scale)


def _divided(numerator: int, denominator: int) -> float:
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf


def _root_to_odd(numerator: int, denominator: int) -> int:
    """Return the integer square root of a fraction, its last bit set if it isn't exact."""
    root = math.isqrt(numerator // denominator)
    return root | (root * root * denominator != numerator)
