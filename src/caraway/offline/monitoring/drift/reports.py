"""How features that a branch served, or the fields of a dataset, compare with a reference, from stored profiles."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.comparing import Shift, compared
from caraway.compute.profiles.kinds import Kind, kind_of
from caraway.compute.profiles.tables import Profile
from caraway.graph.drift import DEFAULT_DRIFT, Drift
from caraway.graph.specs import Graph
from caraway.state.profiles import Found, Reference

DAY, WEEK = 24, 7 * 24


class Against(StrEnum):
    """The profiles with which served features are compared."""

    TRAINING = "training"
    PREVIOUS = "previous"
    DAY = "day"
    WEEK = "week"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDrift:
    """How a feature, or a field of a dataset, compares with its reference.

    Attributes:
        column: The full name of the feature, or the name of the field.
        rows: The number of rows.
        against: The kind of its reference; None if there is none of the column's kind.
        reference_rows: The number of rows of the reference.
        set_at: The time at which the reference was set; None if it is of earlier rows.
        shifts: The distances.
    """

    column: str
    rows: int
    against: Against | None
    reference_rows: int
    set_at: datetime | None
    shifts: tuple[Shift, ...]

    @property
    def drifted(self) -> bool:
        """True if one of the distances is an alarm."""
        return any(shift.drifted for shift in self.shifts)

    @property
    def summary(self) -> str:
        """The distances that are alarms, as a sentence."""
        distances = ", ".join(
            f"{shift.distance} {shift.value:.3g} (an alarm from {shift.threshold:g})"
            for shift in self.shifts
            if shift.drifted
        )
        reference = self.against or "no reference"
        return f"{self.column} has drifted: {distances}; {self.rows:,} rows, compared with {reference}"


@dataclass(frozen=True, slots=True)
class Window:
    """Whole hours up to, not including, an hour."""

    since: datetime
    until: datetime

    def before(self, against: Against) -> "Window":
        """Return the window of the same length with which this one is compared."""
        hours = round((self.until - self.since) / timedelta(hours=1))
        # The distance of the two windows is a whole number of steps, enough that they have no hour in common.
        step = {Against.DAY: DAY, Against.WEEK: WEEK}.get(against, hours)
        earlier = timedelta(hours=-(-hours // step) * step)
        return Window(self.since - earlier, self.until - earlier)


def window_of_last_hours(now: datetime, hours: int) -> Window:
    """Return the window of the last `hours` hours, the current, unfinished one included."""
    until = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    return Window(until - timedelta(hours=hours), until)


def features_of(graph: Graph, name: str | None = None) -> dict[str, tuple[Kind, Drift]]:
    """Return the kinds and thresholds of a graph's features by their full names.

    Args:
        graph: The graph.
        name: A feature or a featureset, if only its features are wanted.
    """
    featureset, dot, only = (name or "").partition(".")
    found: dict[str, tuple[Kind, Drift]] = {}
    for spec in graph.featuresets:
        if name is not None and spec.name != featureset:
            continue
        thresholds = (spec.metadata.drift or Drift()).over(DEFAULT_DRIFT)
        for feature in spec.features:
            if not dot or feature.name == only:
                own = feature.metadata.drift or Drift()
                found[f"{spec.name}.{feature.name}"] = kind_of(feature.dtype), own.over(thresholds)
    return found


class ProfileSource(Protocol):
    """Profiles by the hour, and the references that were set: of served features, or of the rows of datasets."""

    def window(
        self, scope: str, since: datetime, until: datetime, names: Collection[str], /
    ) -> Mapping[tuple[str, Kind], ColumnProfile]:
        """Return the profiles of columns from one hour up to, not including, another one."""
        ...

    def references(self, scope: str, names: Collection[str], /) -> Mapping[str, Reference]:
        """Return the references of those of the columns that have one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """The profiles of columns, and of their references.

    Attributes:
        served: The profiles of what was served, or of the rows of a dataset, by the names of the columns.
        references: The profiles with which they are compared; columns without a reference are missing.
        against: The kinds of the references.
        kept: The references that were set.
    """

    served: Mapping[str, ColumnProfile]
    references: Mapping[str, ColumnProfile]
    against: Mapping[str, Against]
    kept: Mapping[str, Reference]


def read_profiles(
    source: ProfileSource, scope: str, known: Mapping[str, tuple[Kind, Drift]], window: Window
) -> dict[str, ColumnProfile]:
    """Return the profiles of columns within a window that are of the kind that a column has now: it may have changed.

    Raises `UnavailableError` if Postgres doesn't answer.
    """
    found = source.window(scope, window.since, window.until, known)
    return {name: column for (name, kind), column in found.items() if kind is known[name][0]}


def profiles_of(
    source: ProfileSource,
    scope: str,
    known: Mapping[str, tuple[Kind, Drift]],
    window: Window,
    *,
    against: Against | None,
) -> Profiles:
    """Return the profiles of columns within a window, and of their references.

    Args:
        source: The profiles.
        scope: The branch that served the features, or the check of the dataset.
        known: The columns, with their kinds and thresholds.
        window: The window.
        against: The references. None: the one that was set, or else the hours a day before.

    Raises `UnavailableError` if Postgres doesn't answer.
    """
    served = read_profiles(source, scope, known, window)
    kept = source.references(scope, served) if against in {None, Against.TRAINING} else {}
    references = {name: found.profile for name, found in kept.items() if found.profile.kind is known[name][0]}
    kinds = dict.fromkeys(references, Against.TRAINING)
    earlier = Against.DAY if against is None else against
    if earlier is not Against.TRAINING:
        before = window.before(earlier)
        others = read_profiles(source, scope, {name: known[name] for name in served.keys() - references.keys()}, before)
        references |= others
        kinds |= dict.fromkeys(others, earlier)
    return Profiles(served=served, references=references, against=kinds, kept=kept)


def drift_of(
    source: ProfileSource,
    scope: str,
    known: Mapping[str, tuple[Kind, Drift]],
    window: Window,
    *,
    against: Against | None,
    false_alarms: float,
) -> list[ColumnDrift]:
    """Return how columns within a window compare with their references; see `profiles_of`.

    Raises `UnavailableError` if Postgres doesn't answer.
    """
    return compared_columns(profiles_of(source, scope, known, window, against=against), known, false_alarms)


def compared_columns(
    found: Profiles, known: Mapping[str, tuple[Kind, Drift]], false_alarms: float
) -> list[ColumnDrift]:
    """Return how columns compare with their references, from profiles that were read."""
    served, references, kinds, kept = found.served, found.references, found.against, found.kept
    report = compared(
        Profile(references),
        Profile(served),
        thresholds={name: thresholds for name, (_, thresholds) in known.items()},
        false_alarms=false_alarms,
    )
    shifts: dict[str, list[Shift]] = {}
    for shift in report.shifts:
        shifts.setdefault(shift.column, []).append(shift)
    return [
        ColumnDrift(
            column=name,
            rows=column.rows,
            against=kinds.get(name),
            reference_rows=references[name].rows if name in references else 0,
            set_at=kept[name].set_at if kinds.get(name) is Against.TRAINING else None,
            shifts=tuple(shifts.get(name, ())),
        )
        for name, column in sorted(served.items())
    ]


def findings(scope: str, found: Collection[ColumnDrift]) -> list[Found]:
    """Return the distances of the columns of a branch or of a check as they are recorded."""
    return [
        Found(
            scope=scope,
            column=one.column,
            distance=shift.distance.value,
            value=shift.value,
            drifted=shift.drifted,
        )
        for one in found
        for shift in one.shifts
    ]
