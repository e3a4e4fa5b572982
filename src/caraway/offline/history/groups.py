"""The numbers of the keys of a history, from 0 on."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from caraway.dtypes.types import (
    BoolType,
    BytesType,
    DatetimeType,
    DateType,
    FloatType,
    IntType,
    StringType,
    base_type,
)
from caraway.expr.polars.values import from_polars, to_polars
from caraway.plan.model import Column
from caraway.topics.codec import RecordCodec

Ints = npt.NDArray[np.int64]

# Types whose values polars compares as keys are compared. Others, such as structs, are compared by their encoded bytes.
_PLAIN = (IntType, FloatType, BoolType, StringType, BytesType, DateType, DatetimeType)
_NUMBER = "record group"
_ENCODED = "record key"
MISSING = -1


class Groups:
    """The keys that occur in the records of an index, each with a number."""

    def __init__(self, keys: Sequence[Column], frame: pl.DataFrame) -> None:
        """Number the keys of a frame that has a column for each part of a key."""
        self._keys = keys
        self._encode = None
        if not all(isinstance(base_type(key.dtype), _PLAIN) for key in keys):
            self._encode = RecordCodec.of_keys(keys).encode_key
        parts = self._parts([frame[key.name] for key in keys])
        self._known = parts.unique().with_row_index(_NUMBER)
        self.count = self._known.height
        self.numbers = self._numbers(parts)
        """The number of each row's key."""

    def find(self, keys: Sequence[Sequence[object]]) -> Ints:
        """Return the numbers of keys in stored form; MISSING for a key that doesn't occur."""
        parts = [
            to_polars(column.name, [key[position] for key in keys], column.dtype)
            for position, column in enumerate(self._keys)
        ]
        return self.find_series(parts)

    def find_series(self, parts: Sequence[pl.Series]) -> Ints:
        """Return the numbers of keys that are given as a column for each part; see `find`."""
        named = [part.alias(key.name) for part, key in zip(parts, self._keys, strict=True)]
        return self._numbers(self._parts(named))

    def _numbers(self, parts: pl.DataFrame) -> Ints:
        found = parts.join(self._known, on=parts.columns, how="left", nulls_equal=True, maintain_order="left")
        return found[_NUMBER].cast(pl.Int64).fill_null(MISSING).to_numpy()

    def _parts(self, columns: Sequence[pl.Series]) -> pl.DataFrame:
        if self._encode is None:
            return pl.DataFrame(list(columns))
        values = [from_polars(column, key.dtype) for column, key in zip(columns, self._keys, strict=True)]
        encoded = [self._encode(row) for row in zip(*values, strict=True)]
        return pl.DataFrame([pl.Series(_ENCODED, encoded, dtype=pl.Binary)])
