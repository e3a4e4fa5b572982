"""Integers of any size as columns of limbs, and their quotients rounded to floats once (IEEE 754, half to even).

Row k of a matrix of limbs stands for multiples of 2**(32 * k); each column is one integer.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Unsigned = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

LIMB_BITS = 32
BITS = np.uint64(LIMB_BITS)
LIMB = np.uint64((1 << LIMB_BITS) - 1)
# A divisor has to leave room for 32 bits of the dividend in a number of 63 bits.
MAX_DIVISOR = 1 << 31
# A number gets this many zero limbs below it before it is divided. A quotient by up to `MAX_DIVISOR` then has more than
# 64 bits.
_MORE_LIMBS = 3
_TWO_64 = 2.0**64
# By this factor a float is split into two halves of its bits, whose products are exact floats.
_SPLITTER = 2.0**27 + 1.0
# The greatest relative error of a root from the highest 64 bits, with a margin.
_ROOT_ERROR = 2.0**-62
# Floats below 2**-1022 have fewer bits, so scaling a rounded number to one of them would round it a second time.
_LEAST_EXPONENT = -1022


def magnitudes(sums: Ints) -> tuple[Unsigned, Flags]:
    """Return the absolute values of integers whose limbs may be any numbers of 64 bits, and which are negative."""
    limbs = np.zeros((len(sums) + 2, sums.shape[1]), np.int64)
    carry = np.zeros(sums.shape[1], np.int64)
    for number, row in enumerate(sums):
        # The limb is split before the carry is added, since the sum of limb and carry might not fit into 64 bits.
        low = (row & int(LIMB)) + carry
        limbs[number] = low & int(LIMB)
        carry = (row >> LIMB_BITS) + (low >> LIMB_BITS)
    limbs[-2], limbs[-1] = carry & int(LIMB), (carry >> LIMB_BITS) & int(LIMB)
    negative = carry < 0
    found = limbs.astype(np.uint64)
    # The negative of a number in two's complement is the complement of its bits, plus one.
    found[:, negative] ^= LIMB
    rest = negative.astype(np.uint64)
    for number in range(len(found)):
        total = found[number] + rest
        found[number], rest = total & LIMB, total >> BITS
    return found, negative


def divided(limbs: Unsigned, divisor: Unsigned) -> tuple[Unsigned, Flags]:
    """Return the quotients of integers, rounded down, and whether each has a remainder.

    The divisors are greater than 0 and at most `MAX_DIVISOR`.
    """
    quotient = np.empty_like(limbs)
    rest = np.zeros(limbs.shape[1], np.uint64)
    for number in range(len(limbs) - 1, -1, -1):
        quotient[number], rest = np.divmod((rest << BITS) | limbs[number], divisor)
    return quotient, rest != 0


def leading(limbs: Unsigned, more: Flags) -> tuple[Unsigned, Ints]:
    """Return the 64 highest bits of integers, and the powers of two by which they are multiplied.

    The last of these bits is one if a bit below them is, or if there is `more`: the integers are then greater by less
    than one. Integers below 2**63 have zeros at the end.
    """
    count = limbs.shape[1]
    nonzero = limbs != 0
    highest = np.where(nonzero.any(axis=0), len(limbs) - 1 - np.argmax(nonzero[::-1], axis=0), 0)
    # The three highest limbs of each integer, and whether one below them isn't zero.
    padded = np.concatenate([np.zeros((2, count), np.uint64), limbs])
    first, second, third = (np.take_along_axis(padded, (highest + at)[None], 0)[0] for at in (2, 1, 0))
    before = np.concatenate([np.zeros((2, count), bool), np.logical_or.accumulate(nonzero, axis=0)])
    below = more | (np.take_along_axis(before, np.maximum(highest - 1, 0)[None], 0)[0] & (highest >= 2))
    lead = np.where(first != 0, LIMB_BITS - np.frexp(first.astype(np.float64))[1], 0).astype(np.uint64)
    top = (first << (BITS + lead)) | (second << lead) | (third >> (BITS - lead))
    below |= ((third << lead) & LIMB) != 0
    top |= below.astype(np.uint64)
    return top, LIMB_BITS * (highest.astype(np.int64) - 1) - lead.astype(np.int64)


def rounded(limbs: Unsigned, more: Flags, exponent: int) -> tuple[Floats, Flags]:
    """Return integers times `2**exponent` as the nearest floats, infinite if they are too great.

    Args:
        limbs: The integers.
        more: True for each number that is greater than its integer, by less than 1.
        exponent: The exponent of all numbers.

    Returns:
        The floats, and which of them are right. Those below 2**-1022 aren't, and integers that have fewer than 64 bits
        aren't if there is `more`.
    """
    # The last bit of `top` stands for all bits below it. Only a tie depends on that bit, since `top` has eleven bits
    # more than a float.
    top, powers = leading(limbs, more)
    powers += exponent
    found = _scaled(top.astype(np.float64), powers)
    small = (top != 0) & (powers + 63 < _LEAST_EXPONENT)
    return found, ~small


def rooted(limbs: Unsigned, more: Flags, exponent: int) -> tuple[Floats, Flags]:
    """Return the square roots of integers times `2**exponent` as the nearest floats; see `rounded`.

    The root of the highest bits is computed with a correction of twice the precision (Dekker, A floating-point
    technique for extending the available precision, 1971). A root that is so near to the middle of two floats that the
    bits below could decide isn't right.
    """
    top, powers = leading(limbs, more)
    powers += exponent
    # The exponent is made even, so that the root of the power of two is a power of two, too. The 64 highest bits don't
    # fit into a float, so `high` is the float nearest to them, and `low` is the exact difference.
    odd = powers & 1
    high = top.astype(np.float64)
    # `high` may be 2**64, which doesn't fit into 64 bits. Then 0 is subtracted in its place, and the difference is
    # still right modulo 2**64.
    low = (top - np.where(high < _TWO_64, high, 0.0).astype(np.uint64)).view(np.int64).astype(np.float64)
    scale = np.where(odd == 1, 2.0, 1.0)
    high, low, powers = high * scale, low * scale, powers - odd
    root = np.sqrt(high)
    safe = np.where(root > 0, root, 1.0)
    # `square` is the square of the root, rounded to a float. The exact square is `square` plus `lack`.
    square = root * root
    upper = root * _SPLITTER
    upper -= upper - root
    lower = root - upper
    lack = ((upper * upper - square) + 2.0 * upper * lower) + lower * lower
    correction = (((high - square) - lack) + low) / (2.0 * safe)
    found = root + correction
    rest = correction - (found - root)
    unit = np.spacing(found)
    doubt = found * _ROOT_ERROR
    right = (np.abs(np.abs(rest) - 0.5 * unit) > doubt) & (np.abs(np.abs(rest) - 0.25 * unit) > doubt)
    halves = powers >> 1
    right &= (halves + 32 > _LEAST_EXPONENT + 1) | (top == 0)
    return _scaled(found, halves), right | (top == 0)


def _scaled(numbers: Floats, powers: Ints) -> Floats:
    """Return numbers times powers of two; products that are too great are infinite, without a warning of numpy's."""
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(numbers, np.clip(powers, -5000, 5000).astype(np.int32))


def product(one: Unsigned, other: Unsigned) -> Unsigned:
    """Return the products of integers."""
    found = np.zeros((len(one) + len(other), one.shape[1]), np.uint64)
    for place, limb in enumerate(one):
        for more, factor in enumerate(other):
            both = limb * factor
            found[place + more] += both & LIMB
            found[place + more + 1] += both >> BITS
    rest = np.zeros(one.shape[1], np.uint64)
    for number in range(len(found)):
        total = found[number] + rest
        found[number], rest = total & LIMB, total >> BITS
    return found


def spreads(counts: Ints, totals: Ints, squares: Ints) -> Ints:
    """Return the limbs of `count * squares - total**2`, which is the variance times `count**2`.

    The limbs of totals and squares may be any numbers of 64 bits; counts are at most `MAX_DIVISOR`.
    """
    total, _ = magnitudes(totals)
    square, _ = magnitudes(squares)
    greater, less = product(square, counts.astype(np.uint64)[None]), product(total, total)
    found = np.zeros((max(len(greater), len(less)), len(counts)), np.int64)
    found[: len(greater)] += greater.astype(np.int64)
    found[: len(less)] -= less.astype(np.int64)
    return found


def ratios(sums: Ints, divisors: Ints, exponent: int, times: int = 1) -> tuple[Floats, Flags]:
    """Return `sum * 2**exponent / divisor**times`, rounded once, and which of the results are right.

    The limbs of the sums may be any numbers of 64 bits; the divisors are at least 1 and at most `MAX_DIVISOR`.
    """
    limbs, negative, more = _quotients(sums, divisors, times)
    found, right = rounded(limbs, more, exponent - LIMB_BITS * _MORE_LIMBS * times)
    return np.where(negative, -found, found), right


def roots(sums: Ints, divisors: Ints, exponent: int) -> tuple[Floats, Flags]:
    """Return the square roots of `sum * 2**exponent / divisor**2`, rounded once, and which are right; see `ratios`.

    The sums aren't negative.
    """
    limbs, _, more = _quotients(sums, divisors, 2)
    return rooted(limbs, more, exponent - 2 * LIMB_BITS * _MORE_LIMBS)


def _quotients(sums: Ints, divisors: Ints, times: int) -> tuple[Unsigned, Flags, Flags]:
    """Return sums by divisors as integers that are shifted by some limbs, which are negative, and which have a rest."""
    limbs, negative = magnitudes(sums)
    more = np.zeros(sums.shape[1], bool)
    divisor = divisors.astype(np.uint64)
    for _ in range(times):
        limbs = np.concatenate([np.zeros((_MORE_LIMBS, limbs.shape[1]), np.uint64), limbs])
        limbs, rest = divided(limbs, divisor)
        more |= rest
    return limbs, negative, more
