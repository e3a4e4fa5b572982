"""The profiles of the rows of a dataset, by field and hour of event time, until they are recorded."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from caraway.compute.expectations.counts import HOUR_US
from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.kinds import Kind, kind_of
from caraway.compute.profiles.sketches import Hashes
from caraway.compute.profiles.tables import DELAY, hashed
from caraway.dtypes.durations import US_PER_SECOND
from caraway.dtypes.instants import to_datetime
from caraway.dtypes.types import (
    BoolType,
    DataType,
    DatetimeType,
    DateType,
    DecimalType,
    FloatType,
    IntType,
    StringType,
    base_type,
)
from caraway.graph.plan.model import CheckPlan
from caraway.offline.monitoring.quality.deltas import Deltas
from caraway.state.profiles import HourKey

# At most this many profiles wait to be recorded, since each takes some kB of memory.
MOST_PROFILES = 2_000
# The beginning of the year 1, in microseconds; Python has no earlier datetimes.
_FIRST_US = -62_135_596_800 * US_PER_SECOND
# The hash of a key of several columns is made column by column: the hash so far times this odd number, plus the hash of
# the next column.
_FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)
_ENCODE = msgspec.msgpack.Encoder(order="deterministic").encode

Mask = npt.NDArray[np.bool_]


class RowProfiles:
    """Profiles rows by the hour of their event time. Not thread safe."""

    def __init__(self, plan: CheckPlan, kept_s: float) -> None:
        """Prepare.

        Args:
            plan: The check of the dataset.
            kept_s: The seconds before the newest row beyond which an hour has no profiles.
        """
        self._check_id = plan.check_id
        self._fields = {item.name: item.dtype for item in plan.dataset.profiled_fields}
        self._keys = {column.name: column.dtype for column in plan.schema.keys}
        self._kept_s = kept_s
        self._newest_us: int | None = None
        self._profiles: dict[tuple[str, int], ColumnProfile] = {}

    @property
    def is_full(self) -> bool:
        """True if the profiles should be recorded, since they take much memory."""
        return len(self._profiles) >= MOST_PROFILES

    def add(self, deltas: Deltas, now_us: int, shown: Mask | None = None) -> None:
        """Add rows.

        Args:
            deltas: The rows.
            now_us: The time in microseconds since the epoch. Rows that happened later have no part in profiles.
            shown: The rows that count; None: all of them.
        """
        times = np.array(deltas.times_us, np.int64)
        counts = (times <= now_us) & (times >= _FIRST_US)
        if shown is not None:
            counts &= shown
        if not counts.any():
            return
        newest = int(times[counts].max())
        self._newest_us = newest if self._newest_us is None else max(newest, self._newest_us)
        hours = times - times % HOUR_US
        counts &= hours >= self._horizon_us()
        self._forget_old()
        columns = self._columns(deltas)
        hashes = self._hashes(deltas)
        for hour in np.unique(hours[counts]).tolist():
            places = np.flatnonzero(counts & (hours == hour))
            chosen = pa.array(places)
            whole = len(places) == len(times)
            for name, (kind, values) in columns.items():
                profile = self._profiles.setdefault((name, hour), ColumnProfile(kind))
                profile.add(values if whole else values.take(chosen), None if hashes is None else hashes[places])

    def found(self) -> dict[HourKey, ColumnProfile]:
        """Return the profiles of the hours that are kept, without changing them."""
        return {
            HourKey(scope=self._check_id, column=name, kind=profile.kind, hour=to_datetime(hour)): profile
            for (name, hour), profile in self._profiles.items()
        }

    def clear(self) -> None:
        """Forget all profiles, once they are recorded."""
        self._profiles = {}

    def _horizon_us(self) -> float:
        newest = self._newest_us or 0
        return newest - newest % HOUR_US - self._kept_s * US_PER_SECOND

    def _forget_old(self) -> None:
        before = self._horizon_us()
        self._profiles = {key: profile for key, profile in self._profiles.items() if key[1] >= before}

    def _columns(self, deltas: Deltas) -> dict[str, tuple[Kind, pa.Array]]:
        delay = (np.array(deltas.ingested_us, np.int64) - np.array(deltas.times_us, np.int64)) / US_PER_SECOND
        found = {DELAY: (Kind.NUMBER, pa.array(delay))}
        for name, values in deltas.columns(list(self._fields)).items():
            dtype = self._fields[name]
            found[name] = kind_of(dtype), stored_array(values, dtype)
        return found

    def _hashes(self, deltas: Deltas) -> Hashes | None:
        """Return hashes of the rows' keys; None if the dataset has none, so that every row is another event."""
        found: Hashes | None = None
        for name, values in deltas.columns(list(self._keys)).items():
            some = _hashes(values, self._keys[name])
            found = some if found is None else found * _FACTOR + some
        return found


def stored_array(values: Sequence[Any], dtype: DataType) -> pa.Array:
    """Return values in stored form (docs/inside/records.md) as an array of a type of their kind (`kind_of`)."""
    match base_type(dtype):
        case IntType():
            return pa.array(values, pa.int64())
        case FloatType() | DecimalType():
            # A float may be stored as an int, and a decimal is stored as a text.
            return pa.array(_mapped(float, values), pa.float64())
        case StringType():
            return pa.array(values, pa.string())
        case BoolType():
            return pa.array(values, pa.bool_())
        case DatetimeType():
            return pa.array(values, pa.int64()).view(pa.timestamp("us", "UTC"))
        case DateType():
            return pa.array(values, pa.int32()).view(pa.date32())
        case _:
            # Profiles of the other types only have counts: of nulls, and of distinct values, which are told apart by
            # hashes.
            return pa.array(_mapped(_digest, values), pa.binary())


def _mapped(function: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    return [None if value is None else function(value) for value in values]


def _digest(value: object) -> bytes:
    return hashed([_ENCODE(value)]).tobytes()


def _hashes(values: Sequence[Any], dtype: DataType) -> Hashes:
    match base_type(dtype):
        case IntType() if None not in values:
            return pd.util.hash_array(np.array(values, np.int64))
        case StringType():
            return pd.util.hash_array(np.array(values, object), categorize=False)
        case _:
            return hashed([_ENCODE(value) for value in values])
