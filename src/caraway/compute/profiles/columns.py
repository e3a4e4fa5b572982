"""The profile of a column: counts, exact moments, extremes and sketches, which can be merged."""

import math
from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from caraway.compute.profiles.kinds import Kind, kind_in_arrow
from caraway.compute.profiles.sketches import (
    Hashes,
    Repetition,
    Sketch,
    add_distinct,
    distinct_bytes,
    frequent,
    library,
    merge_distinct,
    new_distinct,
    new_frequent,
    new_quantiles,
    restored_distinct,
)
from caraway.compute.profiles.sums import add_floats
from caraway.errors import InvalidInputError
from caraway.process.exact_sums import Moments

# A text with more than MAX_TEXT characters is stored as its first KEPT_TEXT characters and a digest, so that a profile
# has a bounded size.
MAX_TEXT = 64
KEPT_TEXT = 44
# The number of values at the beginning of a batch that are compared with each other. If most of them differ, the batch
# isn't searched for equal values: the search would save little, and takes half as long as adding all values to the
# sketch of distinct ones.
LOOKED_AT = 256
# Each int up to this one is exactly a float.
_EXACT_INT = 1 << 53

Packed = list[Any]


class ColumnProfile:
    """Counts, exact moments and sketches of the values of a column. Not thread safe.

    Attributes:
        kind: The kind of the values.
        rows: The number of rows.
        nulls: The number of rows without a value.
        nans: The number of values that are NaN.
        infinities: The number of values that are infinite.
        moments: Number, exact sum and exact sum of squares of all other numbers.
        least: The least number, or the first time in microseconds since the epoch; None if there is none.
        greatest: The greatest number, or the last time.
        quantiles: The sketch of the quantiles of finite numbers; None for other kinds.
        distinct: The sketch of the number of distinct values.
        frequent: The sketch of frequent categories; None for other kinds.
        repetition: How often the keys of the rows came again; None if the rows have no keys.
    """

    __slots__ = (
        "distinct",
        "frequent",
        "greatest",
        "infinities",
        "kind",
        "least",
        "moments",
        "nans",
        "nulls",
        "quantiles",
        "repetition",
        "rows",
    )

    def __init__(self, kind: Kind) -> None:
        """Create the profile of no rows.

        Raises `UnavailableError` if the library of the sketches isn't installed.
        """
        self.kind = kind
        self.rows = 0
        self.nulls = 0
        self.nans = 0
        self.infinities = 0
        self.moments = Moments()
        self.least: float | None = None
        self.greatest: float | None = None
        self.quantiles: Sketch = new_quantiles() if kind is Kind.NUMBER else None
        self.distinct: Sketch = new_distinct()
        self.frequent: Sketch = new_frequent() if kind is Kind.CATEGORY else None
        self.repetition: Repetition | None = None

    @property
    def missing(self) -> int:
        """The number of rows that have no value that a model can use: null or NaN."""
        return self.nulls + self.nans

    @property
    def values(self) -> int:
        """The number of rows with a value."""
        return self.rows - self.missing

    @property
    def worth(self) -> float:
        """The share of the rows that counts: below 1 if the same keys came again and again."""
        return 1.0 if self.repetition is None or not self.rows else self.repetition.worth(self.rows) / self.rows

    @property
    def mean(self) -> float | None:
        """The mean of the finite numbers, rounded once; None if there are none."""
        return self.moments.mean() if self.moments.count else None

    @property
    def stddev(self) -> float | None:
        """The standard deviation of the finite numbers, rounded once; None if there are none."""
        return self.moments.stddev() if self.moments.count else None

    @property
    def distinct_values(self) -> float:
        """The number of distinct values, about."""
        return float(self.distinct.get_estimate())

    def quantile(self, share: float) -> float | None:
        """Return the value below which a share of the finite numbers is, about; None if there are none."""
        if self.quantiles is None or self.quantiles.is_empty():
            return None
        return float(self.quantiles.get_quantile(share, inclusive=True))

    def top(self, most: int = 10) -> list[tuple[str, int]]:
        """Return the most frequent categories with their counts, which are lower bounds."""
        if self.frequent is None:
            return []
        return [(text, low) for text, low, _ in frequent(self.frequent)[:most]]

    def add(self, values: "pa.Array | pa.ChunkedArray", keys: Hashes | None = None) -> None:
        """Add the values of some rows.

        Args:
            values: A column.
            keys: Hashes of the rows' keys, if it is known which rows are of the same thing.

        Raises `InvalidInputError` if the column is of another kind.
        """
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if pa.types.is_null(values.type):
            self.rows += len(values)
            self.nulls += len(values)
            self._add_keys(keys)
            return
        found = kind_in_arrow(values.type)
        if found is not self.kind:
            raise InvalidInputError(f"a profile of {self.kind} values can't take {values.type}")
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        self.rows += len(values)
        self.nulls += values.null_count
        self._add_keys(keys)
        values = values.drop_null()
        if not len(values):
            return
        match self.kind:
            case Kind.NUMBER:
                self._add_numbers(values)
            case Kind.CATEGORY:
                self._add_categories(values)
            case Kind.TIME:
                self._add_times(values)
            case Kind.OTHER:
                texts = {orjson.dumps(value, default=repr, option=_OPTIONS) for value in values.to_pylist()}
                add_distinct(self.distinct, map(_digest, texts))

    def _add_keys(self, keys: Hashes | None) -> None:
        if keys is not None:
            if self.repetition is None:
                self.repetition = Repetition()
            self.repetition.add(keys)

    def _add_numbers(self, values: pa.Array) -> None:
        floats = np.asarray(pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False))
        finite = floats[np.isfinite(floats)]
        nans = int(np.isnan(floats).sum())
        self.nans += nans
        self.infinities += len(floats) - len(finite) - nans
        if not len(finite):
            return
        if pa.types.is_integer(values.type) and np.abs(finite).max() >= _EXACT_INT:
            # Some of these ints aren't exactly floats, so the exact sums are computed from the ints.
            whole = Moments()
            whole.add_ints(values.to_pylist())
            self.moments.merge(whole)
        else:
            add_floats(self.moments, finite)
        self._extend(float(finite.min()), float(finite.max()))
        self.quantiles.update(finite)
        add_distinct(self.distinct, _different(finite))

    def _add_categories(self, values: pa.Array) -> None:
        if pa.types.is_boolean(values.type):
            values = pc.cast(values, pa.string())
        counted = pc.value_counts(values)
        texts: list[str] = counted.field(0).to_pylist()
        if pc.max(pc.utf8_length(counted.field(0))).as_py() > MAX_TEXT:
            texts = [
                text if len(text) <= MAX_TEXT else f"{text[:KEPT_TEXT]}…{_digest(text.encode())}" for text in texts
            ]
        deque(map(self.frequent.update, texts, counted.field(1).to_pylist()), maxlen=0)
        add_distinct(self.distinct, texts)

    def _add_times(self, values: pa.Array) -> None:
        instants = values if pa.types.is_timestamp(values.type) else pc.cast(values, pa.timestamp("s"))
        micros = pc.cast(pc.cast(instants, pa.timestamp("us", instants.type.tz), safe=False), pa.int64()).to_numpy()
        self._extend(int(micros.min()), int(micros.max()))
        add_distinct(self.distinct, _different(micros))

    def _extend(self, least: float, greatest: float) -> None:
        self.least = least if self.least is None else min(self.least, least)
        self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)

    def merge(self, other: "ColumnProfile") -> None:
        """Add the rows of another profile, which doesn't change.

        Raises `InvalidInputError` if it is of another kind.
        """
        if other.kind is not self.kind:
            raise InvalidInputError(f"a profile of {self.kind} values can't be merged with one of {other.kind} values")
        if (self.repetition is None) != (other.repetition is None) and self.rows and other.rows:
            raise InvalidInputError("one profile knows the keys of its rows, and the other doesn't")
        self.rows += other.rows
        self.nulls += other.nulls
        self.nans += other.nans
        self.infinities += other.infinities
        self.moments.merge(other.moments)
        if other.least is not None and other.greatest is not None:
            self._extend(other.least, other.greatest)
        if self.quantiles is not None:
            self.quantiles.merge(other.quantiles)
        merge_distinct(self.distinct, other.distinct)
        if self.frequent is not None:
            self.frequent.merge(other.frequent)
        if other.repetition is not None:
            self.repetition = self.repetition or Repetition()
            self.repetition.merge(other.repetition)

    def of_kind(self, kind: Kind) -> "ColumnProfile":
        """Return this profile as one of another kind if it has no values, and so no kind yet; otherwise itself."""
        if kind is self.kind or self.values:
            return self
        made = ColumnProfile(kind)
        made.rows = made.nulls = self.rows
        made.repetition = self.repetition
        return made

    def pack(self) -> Packed:
        """Return the profile as values of MessagePack."""
        return [
            self.kind.value,
            [self.rows, self.nulls, self.nans, self.infinities],
            self.moments.pack(),
            [self.least, self.greatest],
            None if self.quantiles is None else self.quantiles.serialize(),
            distinct_bytes(self.distinct),
            None if self.frequent is None else self.frequent.serialize(),
            None if self.repetition is None else self.repetition.counters.tolist(),
        ]

    @classmethod
    def unpack(cls, packed: Sequence[Any]) -> Self:
        """Return the profile that was packed.

        Raises `InvalidInputError` if it isn't one.
        """
        try:
            kind, counts, moments, extremes, quantiles, distinct, frequent_values, repetition = packed
            made = cls(Kind(kind))
            made.rows, made.nulls, made.nans, made.infinities = map(_count, counts)
            made.moments = Moments.unpack(moments)
            made.least, made.greatest = map(_extreme, extremes)
            made.distinct = restored_distinct(distinct)
            if made.quantiles is not None:
                made.quantiles = library().kll_doubles_sketch.deserialize(quantiles)
            if made.frequent is not None:
                made.frequent = library().frequent_strings_sketch.deserialize(frequent_values)
            made.repetition = None if repetition is None else Repetition(repetition)
            made._check()
        except InvalidInputError:
            raise
        except Exception as error:
            # The library raises errors of several classes for damaged bytes.
            raise InvalidInputError(f"a damaged profile of a column: {error}") from error
        return made

    def _check(self) -> None:
        numbers = self.values - self.infinities
        if self.values < 0 or numbers < 0:
            raise InvalidInputError("a damaged profile of a column: it has more values than rows")
        if self.kind is Kind.NUMBER and not self.moments.count == self.quantiles.n == numbers:
            raise InvalidInputError("a damaged profile of a column: its moments and quantiles are of other rows")
        if self.kind is Kind.CATEGORY and self.frequent.total_weight != numbers:
            raise InvalidInputError("a damaged profile of a column: its frequent values are of other rows")


def _different(values: npt.NDArray[Any]) -> list[Any]:
    """Return the different values, and some of them more than once if there are hardly any equal ones."""
    first = values[:LOOKED_AT].tolist()
    are_different = len(first) == LOOKED_AT and len(set(first)) > 0.9 * LOOKED_AT
    found: list[Any] = (values if are_different else np.unique(values)).tolist()
    return found


_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidInputError(f"a damaged profile of a column: {value!r} is no count")
    return value


def _extreme(value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise InvalidInputError(f"a damaged profile of a column: {value!r} is no least or greatest value")
    return value
