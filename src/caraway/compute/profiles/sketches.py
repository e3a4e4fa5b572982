"""The sketches of a profile: of quantiles, of the number of distinct values, of frequent values, and of repetition.

The first three are those of Apache DataSketches. All can be merged, and take a bounded number of bytes.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from caraway.errors import InvalidInputError, UnavailableError

# The classes of the library have no annotations.
Sketch: TypeAlias = Any

# Karnin, Lang and Liberty, "Optimal quantile approximation in streams" (2016). With 256 a rank is off by 1.1% at most,
# with a probability of 99%, and a sketch takes 6 kB whatever the number of values.
QUANTILES_K = 256
# HyperLogLog with 2**11 registers of four bits: a standard error of 2.3%, and 1 kB.
DISTINCT_LG_K = 11
# Misra and Gries with at most 384 values: a count is too great or too small by 0.7% of all counts at most.
FREQUENT_LG_K = 9
# The counters of `Repetition`: with 256 of them the standard error is 9%, which is enough for a sample's size.
COUNTERS = 256

Hashes = npt.NDArray[np.uint64]


@lru_cache(maxsize=1)
def library() -> Any:
    """Return the library of the sketches.

    Raises:
        UnavailableError: It isn't installed.
    """
    try:
        return import_module("datasketches")
    except ImportError as error:
        raise UnavailableError(
            f"profiles need datasketches, which isn't installed ({error}): pip install 'caraway[drift]'"
        ) from error


def new_quantiles() -> Sketch:
    """Return an empty sketch of quantiles."""
    return library().kll_doubles_sketch(QUANTILES_K)


def new_distinct() -> Sketch:
    """Return an empty sketch of distinct values."""
    return library().hll_union(DISTINCT_LG_K)


def new_frequent() -> Sketch:
    """Return an empty sketch of frequent texts."""
    return library().frequent_strings_sketch(FREQUENT_LG_K)


def distinct_bytes(union: Sketch) -> bytes:
    """Return the bytes of a sketch of distinct values."""
    packed: bytes = union.get_result(library().tgt_hll_type.HLL_4).serialize_compact()
    return packed


def restored_distinct(packed: bytes) -> Sketch:
    """Return the sketch of distinct values with these bytes."""
    union = new_distinct()
    union.update(library().hll_sketch.deserialize(packed))
    return union


def add_distinct(into: Sketch, values: Iterable[float | str]) -> None:
    """Add values to a sketch of distinct values."""
    # The values are first added to a sketch of their own, since adding each value to the union itself would take 1.5
    # times as long.
    batch = library().hll_sketch(DISTINCT_LG_K, library().tgt_hll_type.HLL_8)
    deque(map(batch.update, values), maxlen=0)
    into.update(batch)


def merge_distinct(into: Sketch, other: Sketch) -> None:
    """Merge `other` into a sketch of distinct values."""
    into.update(other.get_result(library().tgt_hll_type.HLL_8))


def frequent(sketch: Sketch) -> list[tuple[str, int, int]]:
    """Return the values of a sketch of frequent texts with the least and the greatest count that each may have.

    The most frequent ones come first, and equally frequent ones in the order of their texts.
    """
    kind = library().frequent_items_error_type.NO_FALSE_NEGATIVES
    found = [(text, low, high) for text, _, low, high in sketch.get_frequent_items(kind)]
    return sorted(found, key=lambda item: (-item[1], item[0]))


class Repetition:
    """How often the same keys come again, as the sum of the squares of the keys' counts.

    A sample in which keys come again says less than one of as many different keys: it has the value of
    `rows**2 / squares` rows (Kish, "Survey sampling", 1965). The sum of squares is estimated by random signs (Alon,
    Matias and Szegedy, 1996; Charikar, Chen and Farach-Colton, 2002), and merging adds up the counters.
    """

    __slots__ = ("counters",)

    def __init__(self, counters: Sequence[int] | None = None) -> None:
        """Take counters, by default those of no keys.

        Raises `InvalidInputError` if their number is another one.
        """
        self.counters = np.zeros(COUNTERS, np.int64) if counters is None else np.array(counters, np.int64)
        if self.counters.shape != (COUNTERS,):
            raise InvalidInputError(f"a profile has {len(self.counters)} counters of repeated keys, not {COUNTERS}")

    def add(self, keys: Hashes) -> None:
        """Add keys, given as hashes of 64 random bits."""
        places = (keys % np.uint64(COUNTERS)).astype(np.int64)
        signs = np.where((keys >> np.uint64(63)) == 0, 1.0, -1.0)
        self.counters += np.bincount(places, signs, COUNTERS).astype(np.int64)

    def merge(self, other: "Repetition") -> None:
        """Add the keys of another sketch."""
        self.counters += other.counters

    def worth(self, rows: int) -> float:
        """Return the number of rows with different keys that say as much as `rows` of these keys do."""
        squares = float(np.square(self.counters.astype(np.float64)).sum())
        # The sum of squares is only an estimate. An estimate below the number of rows is raised to that number, which
        # is the least possible sum: that of keys which all differ.
        return rows * rows / max(squares, float(rows)) if rows else 0.0
