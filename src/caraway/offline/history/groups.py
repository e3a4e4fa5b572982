"""The numbers of the keys of a history, from 0 on."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from caraway.dataplane.topics.codec import RecordCodec
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
from caraway.graph.plan.model import Column

Ints = npt.NDArray[np.int64]

# Values of these types are equal in polars exactly if they are equal as keys. Values of other types, such as structs,
# are compared by their encoded bytes.
_PLAIN = (IntType, FloatType, BoolType, StringType, BytesType, DateType, DatetimeType)
_NUMBER = "record group"
_ENCODED = "record key"
MISSING = -1


class Groups:
    """The keys that occur in the records of an index, each with a number."""

    def __init__(self, keys: Sequence[Column]) -> None:
        """Know no keys yet."""
        self._keys = keys
        self._known: pl.DataFrame | None = None

    @property
    def count(self) -> int:
        """How many keys there are."""
        return 0 if self._known is None else self._known.height

    def add(self, frame: pl.DataFrame) -> Ints:
        """Return the number of each row's key; keys that weren't there before get the next numbers.

        The frame has a column for each part of a key.
        """
        parts = key_parts(self._keys, [frame[key.name] for key in self._keys])
        new = parts.unique()
        if self._known is not None:
            new = new.join(self._known, on=parts.columns, how="anti", nulls_equal=True)
        numbered = new.with_row_index(_NUMBER, self.count)
        self._known = numbered if self._known is None else pl.concat([self._known, numbered])
        return self._numbers(parts)

    def find(self, keys: Sequence[Sequence[object]]) -> Ints:
        """Return the numbers of keys in stored form; MISSING for a key that doesn't occur."""
        parts = [
            to_polars(column.name, [key[position] for key in keys], column.dtype)
            for position, column in enumerate(self._keys)
        ]
        return self.find_series(parts)

    def find_series(self, parts: Sequence[pl.Series]) -> Ints:
        """Return the numbers of keys that are given as a column for each part; see `find`."""
        return self._numbers(key_parts(self._keys, parts))

    def _numbers(self, parts: pl.DataFrame) -> Ints:
        if self._known is None:
            return np.full(parts.height, MISSING, np.int64)
        found = parts.join(self._known, on=parts.columns, how="left", nulls_equal=True, maintain_order="left")
        return found[_NUMBER].cast(pl.Int64).fill_null(MISSING).to_numpy()


def key_parts(keys: Sequence[Column], columns: Sequence[pl.Series]) -> pl.DataFrame:
    """Return keys, given as a column for each part, in columns that are equal exactly if the keys are."""
    if all(isinstance(base_type(key.dtype), _PLAIN) for key in keys):
        return pl.DataFrame([column.alias(key.name) for column, key in zip(columns, keys, strict=True)])
    encode = RecordCodec.of_keys(keys).encode_key
    values = [from_polars(column, key.dtype) for column, key in zip(columns, keys, strict=True)]
    encoded = [encode(row) for row in zip(*values, strict=True)]
    return pl.DataFrame([pl.Series(_ENCODED, encoded, dtype=pl.Binary)])
