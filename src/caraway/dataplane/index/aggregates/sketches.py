"""Sketches for columns with too many distinct values: *registers* for their number, *bins* for quantiles.

Both depend only on the multiset of values, not on their order. Registers (HyperLogLog, Flajolet and others 2007, with
the estimator of Ertl 2017) can be merged, but no value can be removed. Bins count values by the leading bits of their
floats; they can be merged and subtracted.
"""

import math
import struct
from collections.abc import Mapping
from hashlib import blake2b

import numpy as np

# A tile is the partial aggregate of one interval of time. If a column has too many distinct values there, the tile
# keeps 4,096 registers of one byte instead, from which their number is estimated with a standard error of 1.6%.
REGISTER_BITS = 12
REGISTERS = 1 << REGISTER_BITS
_RANK_BITS = 64 - REGISTER_BITS
_SCALE = REGISTERS * REGISTERS / (2 * math.log(2))

# A bin holds all floats with equal sign, exponent and first 6 bits of the fraction. A quantile is the middle of a bin,
# which differs from the true value by at most 1/128 of it.
FRACTION_BITS = 6
_SHIFT = 52 - FRACTION_BITS
_INFINITE = 0x7FF << FRACTION_BITS
_MAGNITUDE = (1 << 63) - 1
NAN_BIN = 1 << 20

_FLOAT = struct.Struct(">d")
_BITS = struct.Struct(">Q")


def observe(registers: bytearray, value: bytes) -> None:
    """Add a value to the registers, given as bytes; equal values must have equal bytes."""
    drawn = int.from_bytes(blake2b(value, digest_size=8).digest())
    register, rest = drawn >> _RANK_BITS, drawn & ((1 << _RANK_BITS) - 1)
    registers[register] = max(registers[register], _RANK_BITS - rest.bit_length() + 1)


def united(left: bytes | bytearray, right: bytes | bytearray) -> bytearray:
    """Return the registers of the values of both."""
    return bytearray(np.maximum(np.frombuffer(left, np.uint8), np.frombuffer(right, np.uint8)).tobytes())


def distinct_count(registers: bytes | bytearray) -> int:
    """Return an estimate of how many distinct values were added."""
    counts = np.bincount(np.frombuffer(registers, np.uint8), minlength=_RANK_BITS + 2).tolist()
    total = REGISTERS * _tau(1 - counts[_RANK_BITS + 1] / REGISTERS)
    for rank in range(_RANK_BITS, 0, -1):
        total = 0.5 * (total + counts[rank])
    total += REGISTERS * _sigma(counts[0] / REGISTERS)
    return round(_SCALE / total)


def bin_of(number: float) -> int:
    """Return the bin of a number: an int in the order of numbers, NaN last. Zero has no sign."""
    if number != number:  # noqa: PLR0124 (NaN only)
        return NAN_BIN
    if number == 0:
        return 0
    bits: int = _BITS.unpack(_FLOAT.pack(number))[0]
    bin_number = ((bits & _MAGNITUDE) >> _SHIFT) + 1
    return -bin_number if bits >> 63 else bin_number


def bin_middle(bin_number: int) -> float:
    """Return the number in the middle of a bin, by which its numbers are approximated."""
    if bin_number in {0, NAN_BIN}:
        return math.nan if bin_number else 0.0
    magnitude = abs(bin_number) - 1
    bits = _INFINITE << _SHIFT if magnitude >= _INFINITE else magnitude << _SHIFT | 1 << (_SHIFT - 1)
    middle: float = _FLOAT.unpack(_BITS.pack(bits))[0]
    return -middle if bin_number < 0 else middle


def element(bins: Mapping[int, int], position: int) -> float:
    """Return an approximation of the element at a position of the sorted numbers."""
    seen = 0
    for bin_number in sorted(bins):
        seen += bins[bin_number]
        if seen > position:
            return bin_middle(bin_number)
    raise IndexError(f"there are {seen} numbers, none at position {position}")


def _sigma(share: float) -> float:
    """Return `sum(share**(2**k) * 2**(k - 1))`, Ertl's correction for registers without values."""
    if share == 1:
        return math.inf
    weight, total, before = 1.0, share, -1.0
    while total != before:
        share *= share
        before = total
        total += share * weight
        weight += weight
    return total


def _tau(share: float) -> float:
    """Return Ertl's correction for registers that have reached their maximum."""
    if share in {0, 1}:
        return 0.0
    weight, total, before = 1.0, 1 - share, -1.0
    while total != before:
        share = math.sqrt(share)
        before = total
        weight *= 0.5
        total -= (1 - share) ** 2 * weight
    return total / 3
