"""The quality watch: it checks and profiles the rows of datasets."""

import math
import time
from collections.abc import Collection, Mapping
from datetime import timedelta
from functools import partial

import sqlalchemy as sa
from typing_extensions import override

from caraway.dataplane.archive.store.past import ArchivedPast
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.topics.credentials import sign_in
from caraway.dataplane.topics.erased_keys import ErasedKeys, HidesRecord
from caraway.graph.plan.model import CheckPlan, TopicPlan
from caraway.offline.monitoring.alerts.lasting import LastingAlerts
from caraway.offline.monitoring.alerts.webhook import Webhook
from caraway.offline.monitoring.drift.datasets import NAME, OBJECT, DatasetDrift
from caraway.offline.monitoring.quality.archiving import CountsTable, Retention
from caraway.offline.monitoring.quality.checks import branches_of, checks_of
from caraway.offline.monitoring.quality.counting import is_hidden
from caraway.offline.monitoring.quality.expectation_alerts import ExpectationAlerts
from caraway.offline.monitoring.quality.follower import QualityFollower
from caraway.offline.monitoring.quality.store import QualityStore
from caraway.offline.monitoring.watch import Kind, Watch
from caraway.process.secrets.keyring import open_keyring
from caraway.process.settings.settings import Settings
from caraway.state.erasures import ErasureLog, erasure_by
from caraway.state.losses import Loss, Losses
from caraway.state.plans import Plans
from caraway.state.profiles import ProfileStore, Subject
from caraway.state.reader import StateReader

# Seconds between two looks at the commits and the erased keys; between two looks at all alerts; between two writes of
# the table of counts, after which old counts are removed; and until a write that failed is tried again.
LOOK_SECONDS, ALERT_SECONDS, PRUNE_SECONDS, RETRY_SECONDS = 2.0, 60.0, 3600.0, 60.0


class QualityWatch(Watch):
    """Checks and profiles the rows of all branches' datasets. Not thread safe."""

    def __init__(self, settings: Settings, database: sa.Engine) -> None:
        """Prepare; nothing is read yet."""
        servers = sign_in(settings.kafka)
        self._store = QualityStore(database)
        self._plans = Plans(StateReader(database))
        self._losses = Losses(database)
        self._log, self._number = ErasureLog(database), 0
        self._erased = ErasedKeys(lambda: open_keyring(settings.key_file).mac_keys())
        self._alerts = ExpectationAlerts(self._store, Webhook(settings.alerts.webhook))
        self._kept = timedelta(days=settings.quality.kept_days)
        table = CountsTable(settings.objects_url, self._store) if settings.archive.enabled else None
        self._retention = Retention(self._store, table, self._kept)
        alerts = LastingAlerts(NAME, OBJECT, ObjectFolder(settings.objects_url), Webhook(settings.alerts.webhook))
        self._drift = DatasetDrift(
            ProfileStore(database, Subject.DATASETS),
            alerts,
            hours=settings.drift.hours,
            false_alarms=settings.drift.false_alarms,
            seconds=settings.drift.seconds,
        )

        def past(topic: TopicPlan) -> ArchivedPast:
            return ArchivedPast(servers, settings.objects_url, topic.name, topic.schema)

        self._follower = QualityFollower(
            servers,
            self._store,
            folder=settings.data_dir,
            seconds=settings.quality.seconds,
            kept_s=self._kept.total_seconds(),
            profiles_s=timedelta(days=settings.drift.kept_days).total_seconds(),
            hides=self._hides,
            past=past,
            note_loss=self._note_loss,
        )
        self._checks: Mapping[str, CheckPlan] = {}
        self._branches: Mapping[str, Collection[str]] = {}
        self._looked_at = self._told_at = -math.inf
        # Until there are checks, there are no counts to write to the table or to remove.
        self._prune_at = math.inf

    @override
    def run_once(self) -> bool:
        """Do what there is to do, for about a second, and return whether any dataset is checked.

        Raises `UnavailableError` if Postgres, the broker or the object store doesn't answer.
        """
        now = time.monotonic()
        if now >= self._looked_at + LOOK_SECONDS:
            self._look()
            self._looked_at = now
        recorded = self._follower.step()
        self._tell({check_id: self._checks[check_id] for check_id in recorded})
        self._drift.look(recorded, self._checks, self._branches)
        if now >= self._told_at + ALERT_SECONDS:
            self._tell(self._checks)
            self._told_at = now
        if now >= self._prune_at:
            # If no checks are left, the counts of the former checks are written to the table, but stay in Postgres.
            # `prune` removes them once there are checks again.
            done = self._retention.prune() if self._checks else self._retention.archive()
            self._prune_at = now + (PRUNE_SECONDS if done else RETRY_SECONDS)
        return bool(self._checks)

    @override
    def finish(self) -> None:
        """Record what was counted."""
        self._tell({check_id: self._checks[check_id] for check_id in self._follower.flush()})
        self._retention.finish()

    @override
    def close(self) -> None:
        """Close the connections."""
        self._follower.close()

    def _look(self) -> None:
        needed = self._plans.refresh()
        checks, self._branches = checks_of(needed), branches_of(needed)
        if checks != self._checks:
            # The counts of checks that no branch needs any more are written at once, since a process that starts later
            # doesn't know these checks.
            if self._checks.keys() - checks.keys() or self._prune_at == math.inf:
                self._prune_at = time.monotonic()
            self._follower.follow(checks)
            self._checks = checks
            self._retention.follow(checks)
        self._erase()

    def _erase(self) -> None:
        """Read the keys that were erased since the last call, and remove their samples."""
        found = False
        while records := self._log.since(self._number):
            for record in records:
                self._erased.add(record.key.topic, [erasure_by(record.key)])
            self._number, found = records[-1].id, True
        if not found:
            return
        for check_id, plan in self._checks.items():
            hides = self._hides(plan)
            if hides is not None:
                self._store.forget(check_id, partial(is_hidden, hides))

    def _note_loss(self, plan: CheckPlan, text: str) -> None:
        self._losses.note(Loss(topic=plan.topic.name, follower=plan.check_id, kind="watch", text=text))

    def _hides(self, plan: CheckPlan) -> HidesRecord | None:
        return self._erased.hides_record(plan.erased_on, plan.schema)

    def _tell(self, checks: Mapping[str, CheckPlan]) -> None:
        self._alerts.look(checks, self._branches)


# A call of `run_once` waits for rows by itself, so there is no pause between two calls.
QUALITY = Kind("quality", QualityWatch, enabled=lambda settings: settings.quality.enabled, seconds=lambda _: None)
