"""The profile of the columns of a table, as bytes and as a frame."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Self

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.kinds import kind_in_arrow
from caraway.compute.profiles.sketches import Hashes
from caraway.errors import InvalidInputError
from caraway.process.displays import Table, html

FORMAT = 1
_DECODE = msgspec.msgpack.Decoder(tuple[int, dict[str, list[Any]]]).decode
# A frame with more columns is more likely a mistake, and would need gigabytes of sketches.
MAX_COLUMNS = 10_000
DELAY = "delay_seconds"
QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)


class Profile:
    """The profiles of the columns of a table.

    Attributes:
        columns: The profiles by the names of the columns.
    """

    def __init__(self, columns: Mapping[str, ColumnProfile] | None = None) -> None:
        """Take profiles of columns, by default none."""
        self.columns: dict[str, ColumnProfile] = dict(columns or {})

    @property
    def rows(self) -> int:
        """The number of rows: the most that a column has."""
        return max((column.rows for column in self.columns.values()), default=0)

    def add(
        self, rows: "pa.Table | pa.RecordBatch", *, keys: Sequence[str] = (), delay: tuple[str, str] | None = None
    ) -> None:
        """Add rows.

        Args:
            rows: The rows.
            keys: The columns that tell which rows are of the same thing, such as a user's id. They have no profile.
            delay: The columns with the event time and with the time of ingestion. The seconds from one to the other
                become the values of a column `delay_seconds`.

        Raises:
            InvalidInputError: There is no such column, there are more than 10,000, or one has another kind than before.
        """
        names = rows.schema.names
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise InvalidInputError(f"profile: the columns {', '.join(twice)} come twice")
        if len(set(names) | self.columns.keys()) > MAX_COLUMNS:
            raise InvalidInputError(f"profile: at most {MAX_COLUMNS:,} columns, not {len(names):,}")
        for name in (*keys, *(delay or ())):
            if name not in names:
                raise InvalidInputError(f"profile: there is no column {name!r}; columns: {', '.join(names)}")
        hashes = key_hashes([rows.column(name) for name in keys]) if keys else None
        for name in names:
            if name not in keys:
                self._column(name, rows.column(name).type).add(rows.column(name), hashes)
        if delay is not None:
            seconds = delays(rows.column(delay[0]), rows.column(delay[1]))
            self._column(DELAY, seconds.type).add(seconds, hashes)

    def _column(self, name: str, dtype: pa.DataType) -> ColumnProfile:
        kind = kind_in_arrow(dtype)
        if name not in self.columns:
            self.columns[name] = ColumnProfile(kind)
        elif not pa.types.is_null(dtype):
            self.columns[name] = self.columns[name].of_kind(kind)
        return self.columns[name]

    def merge(self, other: "Profile") -> None:
        """Add the rows of another profile, which doesn't change.

        Raises `InvalidInputError` if a column is of another kind there.
        """
        for name, column in other.columns.items():
            mine = self.columns.get(name, ColumnProfile(column.kind)).of_kind(column.kind)
            self.columns[name] = mine
            try:
                mine.merge(column.of_kind(mine.kind))
            except InvalidInputError as error:
                raise InvalidInputError(f"column {name}: {error}") from None

    def to_bytes(self) -> bytes:
        """Return the profile as bytes, which later versions can read."""
        return msgspec.msgpack.encode([FORMAT, {name: column.pack() for name, column in self.columns.items()}])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the profile with these bytes.

        Raises:
            InvalidInputError: They aren't a profile, or one of a later version.
        """
        try:
            version, columns = _DECODE(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidInputError(f"these bytes are no profile: {error}") from None
        if version != FORMAT:
            raise InvalidInputError(
                f"this profile has format {version}, and this version of Caraway reads {FORMAT}; make it again"
            )
        if len(columns) > MAX_COLUMNS:
            raise InvalidInputError(f"a profile has at most {MAX_COLUMNS:,} columns, not {len(columns):,}")
        return cls({name: ColumnProfile.unpack(packed) for name, packed in columns.items()})

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame with a row for each column: counts, moments, extremes, quantiles and frequent values."""
        return pd.DataFrame([_described(name, column) for name, column in self.columns.items()]).set_index("column")

    def _repr_html_(self) -> str:
        rows = [tuple(map(_cell, _described(name, column).values())) for name, column in self.columns.items()]
        heads = tuple(_described("", ColumnProfile(next(iter(self.columns.values())).kind))) if rows else ()
        return html("profile", (f"{self.rows:,} rows",), [Table("", heads, rows)])

    def __repr__(self) -> str:
        return f"<profile of {len(self.columns)} columns, {self.rows:,} rows>"


def profiled(
    parts: "Iterable[pa.Table | pa.RecordBatch]", *, keys: Sequence[str] = (), delay: tuple[str, str] | None = None
) -> Profile:
    """Return the profile of rows that come in parts; see `Profile.add`."""
    made = Profile()
    for part in parts:
        made.add(part, keys=keys, delay=delay)
    return made


def key_hashes(columns: "Sequence[pa.Array | pa.ChunkedArray]") -> Hashes:
    """Return hashes of 64 bits of the rows of columns; equal values have equal hashes, in every process."""
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return hashed([repr(row).encode() for row in rows])


def hashed(keys: Sequence[bytes]) -> Hashes:
    """Return hashes of 64 bits of keys."""
    return np.frombuffer(b"".join([blake2b(key, digest_size=8).digest() for key in keys]), np.dtype("<u8"))


def delays(events: "pa.Array | pa.ChunkedArray", ingested: "pa.Array | pa.ChunkedArray") -> pa.Array:
    """Return the seconds from the event times to the times of ingestion.

    Raises `InvalidInputError` if one of the columns has no times.
    """
    for column in (events, ingested):
        if not pa.types.is_timestamp(column.type):
            raise InvalidInputError(f"profile: a delay is between two columns of times, not {column.type}")
    micros = pc.subtract(_micros(ingested), _micros(events))
    seconds = pc.divide(pc.cast(micros, pa.float64(), safe=False), 1e6)
    return seconds.combine_chunks() if isinstance(seconds, pa.ChunkedArray) else seconds


def _micros(column: "pa.Array | pa.ChunkedArray") -> Any:
    return pc.cast(pc.cast(column, pa.timestamp("us", column.type.tz), safe=False), pa.int64())


def _described(name: str, column: ColumnProfile) -> dict[str, Any]:
    return {
        "column": name,
        "kind": column.kind.value,
        "rows": column.rows,
        "missing": column.missing,
        "distinct": round(column.distinct_values),
        "mean": column.mean,
        "stddev": column.stddev,
        "min": column.least,
        **{f"{share:.0%}": column.quantile(share) for share in QUANTILES},
        "max": column.greatest,
        "top": ", ".join(f"{text} {count:,}" for text, count in column.top(5)),
    }


def _cell(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value
