"""The profiles of the rows of the table of served features that came since the last pass, by feature and hour."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson
import polars as pl
import pyarrow as pa

from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.kinds import Kind
from caraway.compute.profiles.tables import hashed
from caraway.dataplane.archive.served_table import COMMIT, INPUTS, OFFSET, OUTPUTS, PARTITION
from caraway.dataplane.archive.store.frames import frame_of
from caraway.dataplane.archive.store.tables import ArchiveTable
from caraway.dtypes.instants import to_datetime
from caraway.expr.polars.values import INSTANT
from caraway.state.profiles import HourKey

# One pass profiles at most this many rows (about 100 MB), unless a single message has more. The next pass profiles the
# rest.
MAX_ROWS = 100_000
# One pass looks at the positions of at most this many messages of a partition.
SPAN = 100_000
SERVED_AT, BRANCH = "served_at", "branch"
_COLUMNS = (SERVED_AT, BRANCH, COMMIT, INPUTS, OUTPUTS)

# A function that returns the kinds of a commit's features by their full names, and none if it doesn't know the commit.
Kinds = Callable[[str], Mapping[str, Kind]]


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows that weren't profiled, and the positions behind them, by partition."""

    rows: pl.DataFrame
    until: Mapping[int, int]


def new_rows(table: ArchiveTable, since: Mapping[int, int], ends: Mapping[int, int], *, most: int) -> NewRows:
    """Return the first rows behind some positions, some `most` of them, whole messages only.

    Raises `UnavailableError` if the object store doesn't answer.
    """
    spans = {p: (since.get(p, 0), min(end, since.get(p, 0) + SPAN)) for p, end in ends.items() if since.get(p, 0) < end}
    empty = pl.DataFrame(schema={**dict.fromkeys(_COLUMNS, pl.String()), SERVED_AT: INSTANT})
    if not spans:
        return NewRows(empty, dict(since))
    first, last = min(first for first, _ in spans.values()), max(end for _, end in spans.values())
    files = table.files_within(OFFSET, first, last)
    if files:
        found = frame_of(files, table.options(), [PARTITION, OFFSET], _within(spans))
        spans = {p: _shortened(found, p, span, most // len(spans)) for p, span in spans.items()}
        rows = frame_of(files, table.options(), _COLUMNS, _within(spans))
    else:
        rows = empty
    return NewRows(rows, {**since, **{p: end for p, (_, end) in spans.items()}})


def _within(spans: Mapping[int, tuple[int, int]]) -> pl.Expr:
    return pl.any_horizontal(
        (pl.col(PARTITION) == p) & (pl.col(OFFSET) >= first) & (pl.col(OFFSET) < end)
        for p, (first, end) in spans.items()
    )


def _shortened(found: pl.DataFrame, partition: int, span: tuple[int, int], most: int) -> tuple[int, int]:
    """Return the beginning of a span of offsets that has at most `most` rows, but at least one message."""
    offsets = found.filter(pl.col(PARTITION) == partition)[OFFSET].sort()
    if len(offsets) <= most:
        return span
    # The message of the first row beyond the bound is left out, unless the span begins with it.
    return span[0], max(int(offsets[most]), int(offsets[0]) + 1)


def profiles_of(
    rows: pl.DataFrame, kinds: Kinds, hides: Callable[[str, str, str], bool], branches: Sequence[str]
) -> dict[HourKey, ColumnProfile]:
    """Return the profiles of the features in some rows, by branch, feature and hour.

    Args:
        rows: The rows.
        kinds: The kinds of the features of a commit.
        hides: Returns whether a row with this commit, these inputs and outputs is of an erased key, and left out.
        branches: The branches that exist.
    """
    rows = rows.filter(pl.col(BRANCH).is_in(list(branches))).with_columns(pl.col(SERVED_AT).to_physical())
    made: dict[HourKey, ColumnProfile] = {}
    hour_us = timedelta(hours=1) // timedelta(microseconds=1)
    groups = rows.with_columns(hour=pl.col(SERVED_AT) // hour_us).group_by([BRANCH, COMMIT, "hour"])
    for (branch, commit, hour), found in groups:
        known = kinds(str(commit))
        values: dict[str, tuple[list[Any], list[bytes]]] = {}
        for inputs, outputs in zip(found[INPUTS].to_list(), found[OUTPUTS].to_list(), strict=True):
            if hides(str(commit), inputs, outputs):
                continue
            for name, value in orjson.loads(outputs).items():
                if name in known:
                    column, keys = values.setdefault(name, ([], []))
                    column.append(value)
                    keys.append(inputs.encode())
        for name, (column, keys) in values.items():
            at = to_datetime(int(hour) * hour_us)
            key = HourKey(scope=str(branch), column=name, kind=known[name], hour=at)
            if key not in made:
                made[key] = ColumnProfile(key.kind)
            made[key].add(typed(column, key.kind), hashed(keys))
    return made


def typed(values: Sequence[Any], kind: Kind) -> pa.Array:
    """Return values of JSON as an array of a type of a kind; what isn't of the kind is null."""
    match kind:
        case Kind.NUMBER:
            return _numbers(values)
        case Kind.CATEGORY:
            return pa.array([_text(value) for value in values], pa.string())
        case Kind.TIME:
            return pa.array([_instant(value) for value in values], pa.timestamp("us", "UTC"))
        case Kind.OTHER:
            known = [None if value is None else orjson.dumps(value, option=orjson.OPT_SORT_KEYS) for value in values]
            return pa.array(known, pa.binary())


def _numbers(values: Sequence[Any]) -> pa.Array:
    if all(value is None or (type(value) is int and -(2**63) <= value < 2**63) for value in values):
        return pa.array(values, pa.int64())
    return pa.array([_float(value) for value in values], pa.float64())


def _float(value: object) -> float | None:
    # Decimals are texts in JSON.
    try:
        return float(value) if isinstance(value, (int, float, str)) else None
    except (ValueError, OverflowError):
        return None


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else None


def _instant(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found
