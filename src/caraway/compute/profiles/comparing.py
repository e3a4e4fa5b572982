"""The decision whether a table has drifted from another one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.distances import DISTANCES, Distance
from caraway.compute.profiles.kinds import Kind
from caraway.compute.profiles.tables import Profile
from caraway.errors import InvalidInputError
from caraway.graph.drift import DEFAULT_DRIFT, Drift
from caraway.process.displays import Table, html

# The probability that a comparison of two samples of the same distribution raises an alarm, whatever the number of its
# columns. If there is a comparison each hour, this is at most one false alarm in forty days.
FALSE_ALARMS = 0.001

# The distances of each kind of column.
_NULLS_ONLY = (Distance.MISSING,)
_OF_KIND: Mapping[Kind, tuple[Distance, ...]] = {
    Kind.NUMBER: (Distance.PSI, Distance.KS, Distance.MEAN, Distance.MISSING),
    Kind.CATEGORY: (Distance.PSI, Distance.NEW, Distance.VANISHED, Distance.MISSING),
    Kind.TIME: _NULLS_ONLY,
    Kind.OTHER: _NULLS_ONLY,
}
# The threshold of each distance, by its name in `Drift`.
_THRESHOLDS: Mapping[Distance, str] = {
    Distance.PSI: "psi",
    Distance.KS: "ks",
    Distance.MEAN: "mean",
    Distance.MISSING: "missing",
    Distance.NEW: "categories",
    Distance.VANISHED: "categories",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A distance between two profiles of a column.

    Attributes:
        column: The name of the column.
        distance: The kind of the distance.
        value: The distance of the samples, about.
        at_least: The part of it that neither chance nor a sketch explains; 0: all of it may be chance.
        threshold: The distance from which it is an alarm.
        drifted: True: it reaches the threshold, and chance doesn't explain it.
        note: The change in words.
    """

    column: str
    distance: Distance
    value: float
    at_least: float
    threshold: float
    drifted: bool
    note: str


class DriftReport:
    """The distances between two tables.

    Attributes:
        shifts: The distances of all columns.
        false_alarms: The greatest probability of any alarm if both tables are samples of the same.
        unmatched: The columns that only one table has, or that are of another kind in the other one.
    """

    def __init__(self, shifts: Sequence[Shift], false_alarms: float, unmatched: Sequence[str] = ()) -> None:
        """Take the distances."""
        self.shifts = tuple(shifts)
        self.false_alarms = false_alarms
        self.unmatched = tuple(unmatched)

    @property
    def drifted(self) -> tuple[str, ...]:
        """The names of the columns that have drifted."""
        return tuple(dict.fromkeys(shift.column for shift in self.shifts if shift.drifted))

    def __bool__(self) -> bool:
        return bool(self.drifted)

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame with a row for each distance."""
        return pd.DataFrame([_row(shift) for shift in self.shifts], columns=list(_COLUMNS))

    def _repr_html_(self) -> str:
        first = sorted(self.shifts, key=lambda shift: not shift.drifted)
        rows = [
            (
                shift.column,
                shift.distance.value,
                f"{shift.value:.4g}",
                f"{shift.at_least:.4g}",
                f"{shift.threshold:g}",
                "drifted" if shift.drifted else "",
                shift.note,
            )
            for shift in first
        ]
        facts = [f"{len(self.drifted):,} columns have drifted" if self.drifted else "no column has drifted"]
        facts += [f"not compared: {', '.join(self.unmatched)}"] if self.unmatched else []
        return html("drift", facts, [Table("", _COLUMNS, rows)])

    def __repr__(self) -> str:
        return f"<drift: {', '.join(self.drifted) or 'none'}>"


def compared(
    reference: Profile,
    current: Profile,
    *,
    thresholds: Drift | Mapping[str, Drift] = DEFAULT_DRIFT,
    false_alarms: float = FALSE_ALARMS,
) -> DriftReport:
    """Return the distances of a table's profile from that of another one.

    A column has drifted if a distance reaches its threshold, and neither chance nor the error of a sketch explains it.

    Args:
        reference: The profile of the table with which the other one is compared.
        current: The profile of the other table.
        thresholds: The thresholds of all columns, or of single ones by name; what isn't given has the default.
        false_alarms: The greatest probability of any alarm if both tables are samples of the same distribution.

    Raises:
        InvalidInputError: The probability isn't between 0 and 1.
    """
    if not 0 < false_alarms < 1:
        raise InvalidInputError(f"drift: false_alarms is a probability between 0 and 1, not {false_alarms!r}")
    both = [name for name in reference.columns if _comparable(reference, current, name)]
    checks = sum(len(_OF_KIND[reference.columns[name].kind]) for name in both)
    unmatched = [name for name in {**reference.columns, **current.columns} if name not in both]
    shifts = []
    for name in both:
        known = thresholds if isinstance(thresholds, Drift) else thresholds.get(name, DEFAULT_DRIFT)
        limits = known.over(DEFAULT_DRIFT)
        # The probabilities of all checks add up to `false_alarms` (Bonferroni's inequality).
        shifts += _shifts(name, reference.columns[name], current.columns[name], limits, false_alarms / checks)
    return DriftReport(shifts, false_alarms, unmatched)


def _comparable(reference: Profile, current: Profile, name: str) -> bool:
    one, other = reference.columns.get(name), current.columns.get(name)
    return one is not None and other is not None and one.kind is other.kind


def _shifts(name: str, reference: ColumnProfile, current: ColumnProfile, limits: Drift, doubt: float) -> list[Shift]:
    found = []
    for distance in _OF_KIND[reference.kind]:
        measured = DISTANCES[distance](reference, current, doubt)
        if measured is None:
            continue
        threshold = float(getattr(limits, _THRESHOLDS[distance]))
        found.append(
            Shift(
                column=name,
                distance=distance,
                value=measured.value,
                at_least=measured.at_least,
                threshold=threshold,
                drifted=measured.value >= threshold and measured.at_least > 0,
                note=measured.note,
            )
        )
    return found


_COLUMNS = ("column", "distance", "value", "at_least", "threshold", "drifted", "note")


def _row(shift: Shift) -> dict[str, Any]:
    return {name: getattr(shift, name) for name in _COLUMNS} | {"distance": shift.distance.value}
