"""Exact moments of a column of floats, some nanoseconds a value.

A float is an integer of 53 bits times a power of two. The integer is cut into three pieces of 18 bits, so that a piece
and the product of two pieces are small enough to be added up in floats without rounding. They are added up by exponent;
only these few sums become integers of Python. The results have the bits of `caraway.process.exact_sums`.
"""

import numpy as np
import numpy.typing as npt

from caraway.process.exact_sums import Moments

Floats = npt.NDArray[np.float64]

_PIECE = 18
_FRACTION = 53
# A product of two pieces is below 2**36, and a float adds up integers without rounding as long as the sum is below
# 2**53. So the products of 2**17 values can be added up.
_ROWS = 1 << 17


def add_floats(moments: Moments, values: Floats) -> None:
    """Add finite floats and their squares to moments."""
    for first in range(0, len(values), _ROWS):
        _add(moments, values[first : first + _ROWS])


def _add(moments: Moments, values: Floats) -> None:
    fractions, exponents = np.frexp(values)
    # Values of one exponent stand together, so that they are added up by slices.
    order = np.argsort(exponents.astype(np.int16), kind="stable")
    fractions, exponents = fractions[order], exponents[order]
    starts = np.flatnonzero(np.diff(exponents, prepend=exponents[0] - 1))
    whole = np.ldexp(np.abs(fractions), _FRACTION).astype(np.int64)
    mask = (1 << _PIECE) - 1
    pieces = [((whole >> shift) & mask).astype(np.float64) for shift in (0, _PIECE, 2 * _PIECE)]

    def summed(terms: Floats) -> list[int]:
        return [int(total) for total in np.add.reduceat(terms, starts).tolist()]

    signs = np.sign(fractions)
    totals = [summed(signs * piece) for piece in pieces]
    products = {(i, j): summed(pieces[i] * pieces[j]) for i in range(3) for j in range(i, 3)}
    kinds = exponents[starts].tolist()
    exponent = min(0, kinds[0] - _FRACTION)
    batch = Moments()
    batch.count, batch.exponent = len(values), exponent
    for place, kind in enumerate(kinds):
        up = kind - _FRACTION - exponent
        total = sum(sums[place] << (_PIECE * number) for number, sums in enumerate(totals))
        squares = sum((sums[place] << (_PIECE * (i + j))) * (1 if i == j else 2) for (i, j), sums in products.items())
        batch.total += total << up
        batch.squares += squares << (2 * up)
    moments.merge(batch)
