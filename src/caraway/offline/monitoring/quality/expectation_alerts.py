"""The watch over counts: expectations whose status has changed, and the alerts that tell so."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from caraway.compute.expectations.counts import Counts
from caraway.compute.expectations.report import ExpectationState, Status, states
from caraway.compute.expectations.suite import CheckInfo, checks_of
from caraway.graph.plan.model import CheckPlan
from caraway.offline.monitoring.alerts.alert import Alert, is_due
from caraway.offline.monitoring.alerts.webhook import Webhook
from caraway.offline.monitoring.quality.store import QualityStore, Total, Windows

NAME = "CarawayExpectationViolated"
DAY_HOURS = 24.0


def states_of(
    plan: CheckPlan, windows: Windows, totals: Mapping[tuple[str, int], Total], *, checks: Sequence[CheckInfo] = ()
) -> list[ExpectationState]:
    """Return the states of the expectations of a dataset, in order.

    Args:
        plan: The check.
        windows: Its counts of the last day, at least.
        totals: Its counts of all rows, among others.
        checks: The parts of its suite, if they are known.
    """
    counts = {(number, round(start.timestamp() * 1e6)): found for (number, start), found in windows.items()}
    checks, own = checks or checks_of(plan.suite), plan.check_id
    by_number = {
        number: found.counts for number in range(len(checks)) if (found := totals.get((own, number))) is not None
    }
    return states(plan.dataset.name, plan.suite.version, checks, counts, by_number)


class ExpectationAlerts:
    """Finds which expectations are violated, and sends alerts. Not thread safe.

    An alert is sent until it is taken, also by a process that was started anew, and then once for a change. If the
    process is killed just after it was taken, it is sent once more.
    """

    def __init__(
        self,
        store: QualityStore,
        webhook: Webhook,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare; `clock` returns the time in seconds since the epoch."""
        self._store = store
        self._webhook = webhook
        self._clock = clock

    def look(self, checks: Mapping[str, CheckPlan], branches: Mapping[str, Collection[str]]) -> None:
        """Note new statuses, and send the alerts that are due.

        Args:
            checks: The checks that may have changed, by name.
            branches: The branches that have each check.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        if not checks:
            return
        windows, totals = self._store.windows(checks, DAY_HOURS), self._store.totals(checks)
        now = datetime.fromtimestamp(self._clock(), UTC)
        found = {check_id: states_of(plan, windows.get(check_id, {}), totals) for check_id, plan in checks.items()}
        changed = False
        for check_id, each in found.items():
            for number, state in enumerate(each):
                known = totals.get((check_id, number))
                if known is not None and state.status is not known.status:
                    changed |= self._store.change(check_id, number, state.status, known.status, now)
        if changed:
            totals = self._store.totals(checks)
        self._tell(checks, branches, found, totals, now)

    def _tell(
        self,
        checks: Mapping[str, CheckPlan],
        branches: Mapping[str, Collection[str]],
        found: Mapping[str, Sequence[ExpectationState]],
        totals: Mapping[tuple[str, int], Total],
        now: datetime,
    ) -> None:
        alerts: list[Alert] = []
        told: list[tuple[str, int, datetime]] = []
        for (check_id, number), total in totals.items():
            if check_id not in checks or total.changed_at is None:
                continue
            if not is_due(total.notified_at, now, lasts=total.status is Status.VIOLATED):
                continue
            told.append((check_id, number, total.changed_at))
            # An alert that an expectation is met again is sent only if an alert of its violation may have been sent
            # before.
            if total.status is Status.VIOLATED or total.was_told:
                plan, state = checks[check_id], found[check_id][number]
                alerts += _alerts(plan, state, total, sorted(branches.get(check_id, ())))
        if told and (not alerts or self._webhook.send(alerts)):
            self._store.notified(told, now)


def _alerts(plan: CheckPlan, state: ExpectationState, total: Total, branches: Iterable[str]) -> list[Alert]:
    assert total.changed_at is not None  # noqa: S101 (the caller has looked)
    is_violated = total.status is Status.VIOLATED
    shown = next((counts for counts in (state.hour, state.day, state.total) if counts.evaluated), Counts())
    rate = 1.0 if shown.rate is None else shown.rate
    summary = (
        f"{state.dataset}: {state.name} holds for {rate:.2%} of {shown.evaluated:,} rows, expected {state.mostly:.2%}"
    )
    return [
        Alert(
            name=NAME,
            labels={
                "branch": branch,
                "dataset": state.dataset,
                "expectation": state.name,
                "version": str(state.version),
                "owner": plan.dataset.metadata.owner,
                "severity": "warning",
            },
            annotations={"summary": summary, "description": plan.dataset.metadata.description},
            began_at=(total.violated_at or total.changed_at),
            ended_at=None if is_violated else total.changed_at,
        )
        for branch in branches
    ]
