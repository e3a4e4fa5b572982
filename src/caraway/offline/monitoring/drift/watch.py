"""The passes of the drift watch: each profiles the new served rows, and records how features compare."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

import sqlalchemy as sa
import structlog
from typing_extensions import override

from caraway.compute.profiles.kinds import Kind
from caraway.dataplane.archive.served import ServedErasures
from caraway.dataplane.archive.served_log import SERVED
from caraway.dataplane.archive.served_rows import ErasedRows
from caraway.dataplane.archive.store.model import table_path
from caraway.dataplane.archive.store.tables import ArchiveTable
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.topics.credentials import sign_in
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.ids import topic_id
from caraway.dataplane.topics.positions import TopicEnds
from caraway.dtypes.instants import to_datetime
from caraway.errors import UnavailableError, UnknownEntityError
from caraway.graph.wire.graphs import decode_graph
from caraway.offline.monitoring.alerts.lasting import LastingAlerts, SentAlert
from caraway.offline.monitoring.alerts.webhook import Webhook
from caraway.offline.monitoring.drift.alerting import NAME, OBJECT, drifted
from caraway.offline.monitoring.drift.profiling import MAX_ROWS, new_rows, profiles_of
from caraway.offline.monitoring.drift.reports import drift_of, features_of, findings, window_of_last_hours
from caraway.offline.monitoring.watch import Kind as WatchKind
from caraway.offline.monitoring.watch import Watch
from caraway.process.secrets.keyring import open_keyring
from caraway.process.settings.settings import Settings
from caraway.state.announcements import newest_erasure
from caraway.state.drift import DriftStore, Profiled
from caraway.state.erasures import ErasureLog
from caraway.state.reader import StateReader

LOG = structlog.get_logger(__name__)

# The number of commits whose features are kept in memory.
KEPT_COMMITS = 50
PRUNE_SECONDS = 3600.0
US = 1_000_000


@dataclass(frozen=True, slots=True)
class Parts:
    """The connections of a watch: Postgres, the erased keys, and the alerts."""

    database: sa.Engine
    erased: ErasedKeys
    alerts: LastingAlerts


class DriftWatch(Watch):
    """Profiles served features. Not thread safe."""

    def __init__(self, settings: Settings, parts: Parts, *, clock: Callable[[], float] = time.time) -> None:
        """Prepare; nothing is read yet. `clock` returns the time in seconds since the epoch."""
        self._settings = settings
        self._servers = sign_in(settings.kafka)
        self._clock = clock
        self._alerts = parts.alerts
        self._store = DriftStore(parts.database)
        self._state = StateReader(parts.database)
        self._kinds = lru_cache(maxsize=KEPT_COMMITS)(self._read_kinds)
        log = ErasureLog(parts.database)
        self._erased_rows = ErasedRows(parts.erased, lambda commit: decode_graph(self._state.graph(commit)))
        self._erasures = ServedErasures(log, self._erased_rows, lambda _: None)
        self._pruned_at = float("-inf")

    @override
    def run_once(self) -> bool:
        """Profile new rows, and return whether there were any.

        Raises `UnavailableError` if Postgres, the broker or the object store doesn't answer; the rows are then looked
        at again.
        """
        began = time.monotonic()
        # Alerts that the webhook hasn't accepted are sent again in each pass, also if nothing was served.
        self._alerts.send()
        branches = [branch.name for branch in self._state.branch_heads().branches]
        self._prune(branches)
        path = table_path(SERVED, topic_id(self._servers, SERVED))
        table = ArchiveTable.existing(self._settings.objects_url, path)
        if table is None:
            return False
        # A key that is erased after this moment makes the profiles void: see `_no_newer_erasure`.
        self._erasures.refresh()
        name = table.url.rpartition("/")[2]
        since = self._store.positions(name)
        partitions = TopicEnds(self._servers).ends([SERVED]).get(SERVED, {})
        found = new_rows(table, since, table.positions(partitions), most=MAX_ROWS)
        if dict(found.until) == since:
            return False
        columns = profiles_of(found.rows, self._kinds, self._erased_rows.hides, branches)
        profiled = Profiled(topic_id=name, since=since, until=found.until, columns=columns)
        if not self._store.add(profiled, self._no_newer_erasure):
            raise UnavailableError("a key was erased, or another process has profiled the same rows meanwhile")
        self._alerts.look([alert for branch in branches for alert in self._compare(branch)])
        LOG.info(
            "served features were profiled",
            rows=len(found.rows),
            profiles=len(columns),
            seconds=round(time.monotonic() - began, 3),
        )
        return True

    def _compare(self, branch: str) -> list[SentAlert]:
        """Record how the features of a branch compare with their references, and return those that have drifted."""
        graph = decode_graph(self._state.head(branch).graph)
        now = to_datetime(int(self._clock() * US))
        window = window_of_last_hours(now, self._settings.drift.hours)
        found = drift_of(
            self._store.profiles,
            branch,
            features_of(graph),
            window,
            against=None,
            false_alarms=self._settings.drift.false_alarms,
        )
        self._store.profiles.record(branch, findings(branch, found))
        return drifted(branch, graph, found, now)

    def _read_kinds(self, commit: str) -> Mapping[str, Kind]:
        try:
            graph = decode_graph(self._state.graph(commit))
        except UnknownEntityError:
            # The commit isn't one of this deployment: another deployment may log its served features to the same topic.
            # The kinds of its features aren't known here.
            return {}
        return {name: kind for name, (kind, _) in features_of(graph).items()}

    def _no_newer_erasure(self, connection: sa.Connection) -> bool:
        """Return whether all erased keys are known here, and keep others from being erased until the commit."""
        return newest_erasure(connection) <= self._erasures.number

    def _prune(self, branches: list[str]) -> None:
        now = self._clock()
        if now >= self._pruned_at + PRUNE_SECONDS:
            self._pruned_at = now
            before = to_datetime(int(now * US)) - timedelta(days=self._settings.drift.kept_days)
            self._store.prune(before, branches)


def _open(settings: Settings, database: sa.Engine) -> DriftWatch:
    erased = ErasedKeys(lambda: open_keyring(settings.key_file).mac_keys())
    alerts = LastingAlerts(NAME, OBJECT, ObjectFolder(settings.objects_url), Webhook(settings.alerts.webhook))
    return DriftWatch(settings, Parts(database, erased, alerts))


DRIFT = WatchKind(
    "drift", _open, enabled=lambda settings: settings.drift.enabled, seconds=lambda settings: settings.drift.seconds
)
