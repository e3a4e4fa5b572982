"""How the features that a branch served compare with a reference, from the stored profiles."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from caraway.graph.drift import DEFAULT_DRIFT, Drift
from caraway.graph.specs import Graph
from caraway.profiles.columns import ColumnProfile
from caraway.profiles.comparing import Shift, compared
from caraway.profiles.kinds import Kind, kind_of
from caraway.profiles.tables import Profile
from caraway.served.drift import DriftStore, Reference
from caraway.served.findings import Found

DAY, WEEK = 24, 7 * 24


class Against(StrEnum):
    """The profiles with which served features are compared."""

    TRAINING = "training"
    PREVIOUS = "previous"
    DAY = "day"
    WEEK = "week"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureDrift:
    """How a feature compares with its reference.

    Attributes:
        feature: The full name.
        rows: The number of rows that were served.
        against: The kind of its reference; None if there is none of the feature's kind.
        reference_rows: The number of rows of the reference.
        set_at: The time at which the reference was set; None if it is what was served earlier.
        shifts: The distances.
    """

    feature: str
    rows: int
    against: Against | None
    reference_rows: int
    set_at: datetime | None
    shifts: tuple[Shift, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """Whole hours up to, not including, an hour."""

    since: datetime
    until: datetime

    def before(self, against: Against) -> "Window":
        """Return the window of the same length with which this one is compared."""
        hours = round((self.until - self.since) / timedelta(hours=1))
        # Two windows never have an hour in common.
        step = {Against.DAY: DAY, Against.WEEK: WEEK}.get(against, hours)
        earlier = timedelta(hours=-(-hours // step) * step)
        return Window(self.since - earlier, self.until - earlier)


def last_hours(now: datetime, hours: int) -> Window:
    """Return the window of so many hours, the last of which is the one that hasn't passed yet."""
    until = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    return Window(until - timedelta(hours=hours), until)


def features_of(graph: Graph) -> dict[str, tuple[Kind, Drift]]:
    """Return the kinds and thresholds of a graph's features by their full names."""
    return {
        f"{spec.name}.{feature.name}": (
            kind_of(feature.dtype),
            (feature.metadata.drift or Drift()).over(spec.metadata.drift or Drift()).over(DEFAULT_DRIFT),
        )
        for spec in graph.featuresets
        for feature in spec.features
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """The profiles of served features, and of their references.

    Attributes:
        served: The profiles of what was served, by the full names of features.
        references: The profiles with which they are compared; features without a reference are missing.
        against: The kinds of the references.
        kept: The references that were set.
    """

    served: Mapping[str, ColumnProfile]
    references: Mapping[str, ColumnProfile]
    against: Mapping[str, Against]
    kept: Mapping[str, Reference]


def profiles_of(
    store: DriftStore,
    branch: str,
    known: Mapping[str, tuple[Kind, Drift]],
    window: Window,
    *,
    against: Against | None,
) -> Profiles:
    """Return the profiles of features that a branch served within a window, and of their references.

    Args:
        store: The profiles.
        branch: The branch.
        known: The features, with their kinds and thresholds.
        window: The window.
        against: The references. None: the one that was set, or else what was served a day before.

    Raises `UnavailableError` if Postgres doesn't answer.
    """
    served = _of_kind(store.window(branch, window.since, window.until, known), known)
    kept = store.references(branch, served) if against in {None, Against.TRAINING} else {}
    references = {name: found.profile for name, found in kept.items() if found.profile.kind is known[name][0]}
    kinds = dict.fromkeys(references, Against.TRAINING)
    earlier = Against.DAY if against is None else against
    if earlier is not Against.TRAINING:
        before = window.before(earlier)
        others = _of_kind(store.window(branch, before.since, before.until, served.keys() - references.keys()), known)
        references |= others
        kinds |= dict.fromkeys(others, earlier)
    return Profiles(served=served, references=references, against=kinds, kept=kept)


def drift_of(
    store: DriftStore,
    branch: str,
    known: Mapping[str, tuple[Kind, Drift]],
    window: Window,
    *,
    against: Against | None,
    false_alarms: float,
) -> list[FeatureDrift]:
    """Return how features that a branch served within a window compare with their references; see `profiles_of`.

    Raises `UnavailableError` if Postgres doesn't answer.
    """
    found = profiles_of(store, branch, known, window, against=against)
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
        FeatureDrift(
            feature=name,
            rows=column.rows,
            against=kinds.get(name),
            reference_rows=references[name].rows if name in references else 0,
            set_at=kept[name].set_at if kinds.get(name) is Against.TRAINING else None,
            shifts=tuple(shifts.get(name, ())),
        )
        for name, column in sorted(served.items())
    ]


def findings(branch: str, features: Collection[FeatureDrift]) -> list[Found]:
    """Return the distances of features as they are recorded."""
    return [
        Found(
            branch=branch,
            feature=found.feature,
            distance=shift.distance.value,
            value=shift.value,
            drifted=shift.drifted,
        )
        for found in features
        for shift in found.shifts
    ]


def _of_kind(
    found: Mapping[tuple[str, Kind], ColumnProfile], known: Mapping[str, tuple[Kind, Drift]]
) -> dict[str, ColumnProfile]:
    """Return the profiles that are of the kind that a feature has now, since its type may have changed."""
    return {name: column for (name, kind), column in found.items() if kind is known[name][0]}
