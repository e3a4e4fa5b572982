"""The numbers of the keys of a history, from 0 on, and rows sorted by them."""

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
        columns = list(zip(*keys, strict=True)) or [()] * len(self._keys)
        parts = [to_polars(key.name, values, key.dtype) for key, values in zip(self._keys, columns, strict=True)]
        return self._numbers(self._parts(parts))

    def _numbers(self, parts: pl.DataFrame) -> Ints:
        found = parts.join(self._known, on=parts.columns, how="left", nulls_equal=True, maintain_order="left")
        return found[_NUMBER].cast(pl.Int64).fill_null(MISSING).to_numpy()

    def _parts(self, columns: Sequence[pl.Series]) -> pl.DataFrame:
        if self._encode is None:
            return pl.DataFrame(list(columns))
        values = [from_polars(column, key.dtype) for column, key in zip(columns, self._keys, strict=True)]
        encoded = [self._encode(row) for row in zip(*values, strict=True)]
        return pl.DataFrame([pl.Series(_ENCODED, encoded, dtype=pl.Binary)])


def sorted_places(groups: Ints, times: Ints, order: pl.Series | None = None) -> Ints:
    """Return the positions of rows sorted by group, then by time, and if it is given by a further column."""
    if not len(groups):
        return np.zeros(0, np.int64)
    first, span = int(times.min()), int(times.max()) - int(times.min()) + 1
    if (int(groups.max()) + 1) * span < 1 << 63:
        joint = groups * span + (times - first)
        places = pl.Series(joint).arg_sort().to_numpy().astype(np.int64, copy=False)
        if order is None:
            return places
        ranked = joint[places]
        same = ranked[1:] == ranked[:-1]
        if not same.any():
            return places
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        # Rows of one group and time are adjacent, so sorting the tied ones among themselves leaves all others in place.
        among = pl.DataFrame({"joint": ranked[tied], "order": order.gather(places[tied])})
        places = places.copy()
        places[tied] = places[tied][among.select(pl.arg_sort_by("joint", "order")).to_series().to_numpy()]
        return places
    by = [pl.Series("group", groups), pl.Series("time", times), *([] if order is None else [order.alias("order")])]
    frame = pl.DataFrame(by)
    return frame.select(pl.arg_sort_by(frame.columns)).to_series().to_numpy().astype(np.int64, copy=False)
