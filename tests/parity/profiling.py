"""The profiles of datasets in a run against plain Python: exact parts to the bit, sketches within their bounds."""

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import sqlalchemy as sa

from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.kinds import Kind
from caraway.compute.profiles.tables import DELAY, Profile
from caraway.graph.plan.model import CheckPlan
from caraway.offline.monitoring.drift.datasets import profiled_kinds
from caraway.state.profiles import Subject
from caraway.state.tables import drift_profiles
from tests.parity.comparing import Difference
from tests.parity.traffic import Part

HOUR_US = 3_600_000_000
#: The bounds of the sketches: the share of a rank that a quantile may be off, and the share of distinct values.
RANK, DISTINCT = 0.02, 0.12

Row = Mapping[str, Any]


def stored_profiles(engine: sa.Engine, check: CheckPlan) -> dict[tuple[str, int], ColumnProfile]:
    """Return the profiles of a check by field and hour, in microseconds since the epoch."""
    table = drift_profiles
    own = table.c.subject == Subject.DATASETS, table.c.scope == check.check_id
    query = sa.select(table.c.column, table.c.hour, table.c.profile).where(*own)
    with engine.connect() as connection:
        rows = connection.execute(query).all()
    return {
        (name, round(hour.timestamp()) * 1_000_000): Profile.from_bytes(data).columns[name] for name, hour, data in rows
    }


def differing_profiles(
    part: Part, check: CheckPlan, rows: Sequence[Row], stored: Mapping[tuple[str, int], ColumnProfile]
) -> list[Difference]:
    """Return where the profiles of a check aren't those of its rows."""
    now_us = datetime.now(UTC).timestamp() * 1e6
    timestamp = check.schema.timestamp
    by_hour: dict[int, list[Row]] = {}
    for row in rows:
        if row[timestamp] <= now_us:
            by_hour.setdefault(row[timestamp] // HOUR_US * HOUR_US, []).append(row)
    kinds = profiled_kinds(check)
    wanted = {(name, hour) for hour in by_hour for name in kinds}
    found = []
    if wanted != stored.keys():
        found.append(Difference(part, check.dataset.name, "profiled fields and hours", wanted, set(stored)))
    for name, hour in sorted(wanted & stored.keys()):
        own, profile = by_hour[hour], stored[name, hour]
        # The times of ingestion aren't among the rows.
        exact = {"rows": len(own)} if name == DELAY else exact_parts(kinds[name], [row[name] for row in own])
        shown = {what: value_of(profile, what) for what in exact}
        if repr(shown) != repr(exact):
            found.append(Difference(part, check.dataset.name, f"profile of {name} at {hour}", exact, shown))
        elif name != DELAY and (fault := beyond_bounds(kinds[name], [row[name] for row in own], profile)):
            found.append(Difference(part, check.dataset.name, f"sketches of {name} at {hour}", "within bounds", fault))
    return found


def exact_parts(kind: Kind, values: Sequence[Any]) -> dict[str, Any]:
    """Return the parts of a profile that must be exact."""
    there = [value for value in values if value is not None]
    parts: dict[str, Any] = {"rows": len(values), "nulls": len(values) - len(there)}
    if kind is Kind.NUMBER:
        numbers = [float(value) for value in there]
        finite = [number for number in numbers if math.isfinite(number)]
        parts |= {"nans": sum(map(math.isnan, numbers)), "infinities": sum(map(math.isinf, numbers))}
        parts["count"] = len(finite)
        # A decimal, whose stored form is a text, is profiled as the float that is nearest to it.
        exact = [Fraction(float(value) if isinstance(value, str) else value) for value in there if is_finite(value)]
        parts["sum"] = rounded(sum(exact, Fraction())) if finite else 0.0
        parts["squares"] = sum((one * one for one in exact), Fraction())
        # Either of -0.0 and 0.0 may be the least value.
        parts["least"], parts["greatest"] = (min(finite) + 0.0, max(finite) + 0.0) if finite else (None, None)
    if kind is Kind.CATEGORY:
        texts = [str(value).lower() if isinstance(value, bool) else value for value in there]
        parts["top"] = sorted(Counter(texts).items())
    return parts


def is_finite(value: Any) -> bool:
    """Return whether a number in stored form is finite."""
    return math.isfinite(float(value))


def rounded(exact: Fraction) -> float:
    """Return the float that is nearest to an exact sum, which is infinite beyond all floats; a sum of zeros is 0.0."""
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def value_of(profile: ColumnProfile, what: str) -> Any:
    """Return a part of a profile by the name that `exact_parts` has for it."""
    moments = profile.moments
    match what:
        case "count":
            return moments.count
        case "sum":
            return moments.sum() + 0.0 if moments.count else 0.0
        case "squares":
            return Fraction(moments.squares) * Fraction(2) ** (2 * moments.exponent)
        case "least" | "greatest":
            extreme = getattr(profile, what)
            return extreme if extreme is None else extreme + 0.0
        case "top":
            return sorted(profile.top(1_000))
        case _:
            return getattr(profile, what)


def beyond_bounds(kind: Kind, values: Sequence[Any], profile: ColumnProfile) -> str:
    """Return which sketch is beyond its bound; empty if none is."""
    there = [value for value in values if value is not None]
    if kind is Kind.NUMBER:
        finite = sorted(float(value) for value in there if math.isfinite(float(value)))
        for share in (0.1, 0.5, 0.9) if finite else ():
            value = profile.quantile(share)
            assert value is not None
            least, greatest = bisect_left(finite, value), bisect_right(finite, value)
            slack = RANK * len(finite) + 1
            if not least - slack <= share * len(finite) <= greatest + slack:
                return f"the quantile {share} is {value}, of rank {least} to {greatest} of {len(finite)}"
        there = [number + 0.0 for number in finite]
    if kind is Kind.OTHER:
        return ""
    distinct = len(set(there))
    if abs(profile.distinct_values - distinct) > DISTINCT * distinct + 1:
        return f"{profile.distinct_values} distinct values, not {distinct}"
    return ""
