"""Exact moments of a column of floats, some nanoseconds a value.

A float is an integer of 53 bits times a power of two. The integer is cut into three pieces of 18 bits, so that a piece
and the product of two pieces are small enough to be added up in floats without rounding. They are added up by exponent;
only these few sums become integers of Python. The results have the bits of `caraway.moments`.
"""

import numpy as np
import numpy.typing as npt

from caraway.moments import Moments

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
    whole = np.ldexp(np.abs(fractions), _FRACTION).astype(np.int64)
    signs = np.sign(values)
    # Values are grouped by exponent; the places are small numbers, also if the exponents are far apart.
    kinds, places = np.unique(exponents, return_inverse=True)
    mask = (1 << _PIECE) - 1
    pieces = [((whole >> shift) & mask).astype(np.float64) for shift in (0, _PIECE, 2 * _PIECE)]

    def summed(weights: Floats) -> list[int]:
        return [int(total) for total in np.bincount(places, weights, len(kinds)).tolist()]

    totals = [summed(signs * piece) for piece in pieces]
    products = {(i, j): summed(pieces[i] * pieces[j]) for i in range(3) for j in range(i, 3)}
    least = int(kinds.min()) - _FRACTION
    exponent = min(0, least)
    batch = Moments()
    batch.count, batch.exponent = len(values), exponent
    for place, kind in enumerate(kinds.tolist()):
        up = kind - _FRACTION - exponent
        total = sum(sums[place] << (_PIECE * number) for number, sums in enumerate(totals))
        squares = sum((sums[place] << (_PIECE * (i + j))) * (1 if i == j else 2) for (i, j), sums in products.items())
        batch.total += total << up
        batch.squares += squares << (2 * up)
    moments.merge(batch)
