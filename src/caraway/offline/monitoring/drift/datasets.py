"""How the rows of datasets compare with earlier ones: by field, from their profiles."""

import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime

from caraway.compute.profiles.kinds import Kind, kind_of
from caraway.compute.profiles.tables import DELAY
from caraway.graph.drift import DEFAULT_DRIFT, Drift
from caraway.graph.plan.model import CheckPlan
from caraway.offline.monitoring.alerts.lasting import LastingAlerts, SentAlert
from caraway.offline.monitoring.drift.alerting import drift_alert
from caraway.offline.monitoring.drift.reports import (
    Against,
    ColumnDrift,
    Window,
    drift_of,
    findings,
    window_of_last_hours,
)
from caraway.state.profiles import ProfileStore

NAME = "CarawayFieldDrifted"
# The object of the object store that stores the alerts that were sent.
OBJECT = "drift/dataset_alerts.json"
# Between the begins of two comparisons lies at least ten times the duration of the first one. So comparisons take at
# most a tenth of a processor.
RESTS = 10
NEVER = float("-inf")


def profiled_kinds(plan: CheckPlan) -> dict[str, Kind]:
    """Return the columns that have profiles, with their kinds: some fields, and the delay until rows are ingested."""
    kinds = {item.name: kind_of(item.dtype) for item in plan.dataset.profiled_fields}
    return {DELAY: Kind.NUMBER} | kinds


def columns_of(plan: CheckPlan) -> dict[str, tuple[Kind, Drift]]:
    """Return the columns of a dataset that have profiles, with their kinds and thresholds."""
    of_dataset = (plan.dataset.metadata.drift or Drift()).over(DEFAULT_DRIFT)
    own = {item.name: item.metadata.drift or Drift() for item in plan.dataset.fields}
    return {name: (kind, own.get(name, Drift()).over(of_dataset)) for name, kind in profiled_kinds(plan).items()}


def dataset_window(profiles: ProfileStore, check_id: str, hours: int) -> Window | None:
    """Return the last hours of event time up to the newest row of a dataset; None if no row was profiled.

    Raises `UnavailableError` if Postgres doesn't answer.
    """
    newest = profiles.newest(check_id)
    return None if newest is None else window_of_last_hours(newest, hours)


class DatasetDrift:
    """Compares the profiles of datasets with earlier ones, one dataset after the other. Not thread safe."""

    def __init__(
        self,
        profiles: ProfileStore,
        alerts: LastingAlerts,
        *,
        hours: int,
        false_alarms: float,
        seconds: float,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            profiles: The profiles.
            alerts: The alerts.
            hours: The hours that are compared with those a day before.
            false_alarms: The greatest probability that a comparison has any alarm though nothing has changed.
            seconds: The shortest pause between two comparisons of a dataset, and between two looks at all alerts.
            clock: Returns the time in seconds since the epoch.
            elapsed: Returns seconds that never go back.
        """
        self._profiles = profiles
        self._alerts = alerts
        self._hours = hours
        self._false_alarms = false_alarms
        self._seconds = seconds
        self._clock = clock
        self._elapsed = elapsed
        self._found: dict[str, list[ColumnDrift]] = {}
        # The datasets that have new rows, the one that has waited longest first.
        self._waiting: dict[str, None] = {}
        self._compared_at: dict[str, float] = {}
        self._rests_until = self._told_at = NEVER

    def look(
        self, changed: Collection[str], checks: Mapping[str, CheckPlan], branches: Mapping[str, Collection[str]]
    ) -> None:
        """Compare a dataset with new rows, if one is due, record how it compares, and send the alerts that are due.

        Args:
            changed: The names of the checks with rows that are new since the last call.
            checks: All checks by name.
            branches: The branches that serve each check.

        Raises `UnavailableError` if Postgres or the object store doesn't answer.
        """
        self._found = {check_id: found for check_id, found in self._found.items() if check_id in checks}
        # A new process compares every dataset once, since it doesn't know which drifts its predecessor has found.
        new = [i for i, plan in checks.items() if plan.profiled and (i in changed or i not in self._compared_at)]
        self._waiting = {i: None for i in (*self._waiting, *new) if i in checks}
        began = self._elapsed()
        due = next((i for i in self._waiting if began >= self._compared_at.get(i, NEVER) + self._seconds), None)
        if due is not None and began >= self._rests_until:
            self._found[due] = self._compare(checks[due])
            del self._waiting[due]
            self._compared_at[due] = began
            # This thread also counts the rows of all datasets, so it mustn't spend more of its time on comparisons.
            self._rests_until = began + RESTS * (self._elapsed() - began)
        if began >= self._told_at + self._seconds:
            self._tell(checks, branches)
            self._told_at = began

    def _tell(self, checks: Mapping[str, CheckPlan], branches: Mapping[str, Collection[str]]) -> None:
        now = datetime.fromtimestamp(self._clock(), UTC)
        self._alerts.look(
            _alert(checks[check_id], branch, one, now)
            for check_id, found in self._found.items()
            for branch in sorted(branches.get(check_id, ()))
            for one in found
            if one.drifted
        )

    def _compare(self, plan: CheckPlan) -> list[ColumnDrift]:
        check_id = plan.check_id
        window = dataset_window(self._profiles, check_id, self._hours)
        if window is None:
            return []
        found = drift_of(
            self._profiles,
            check_id,
            columns_of(plan),
            window,
            against=Against.DAY,
            false_alarms=self._false_alarms,
        )
        self._profiles.record(check_id, findings(check_id, found))
        return found


def _alert(plan: CheckPlan, branch: str, found: ColumnDrift, now: datetime) -> SentAlert:
    spec = plan.dataset
    described = {item.name: item.metadata for item in spec.fields}.get(found.column, spec.metadata)
    labels = {"branch": branch, "dataset": spec.name, "field": found.column}
    return drift_alert(labels, f"{spec.name}.{found.summary}", described, spec.metadata, now)
