"""The index of a server: its database and the threads that fill it."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import sqlalchemy as sa
import structlog

from caraway.apps.server.emitting import LEASE, EmissionRight
from caraway.compute.query.model import Reader
from caraway.dataplane.archive.store.past import Pasts
from caraway.dataplane.index.feeding.worker import IndexStatus, IndexWorker, left_out
from caraway.dataplane.index.feeding.writer import NoteArrivals
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.records.removal import compact
from caraway.dataplane.index.storage.snapshots import SnapshotKeeper, Snapshots
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.errors import UnavailableError
from caraway.graph.erase_keys import Erasure
from caraway.graph.plan.model import IndexPlan
from caraway.process.settings.settings import Settings
from caraway.state.blueprints import EMITS
from caraway.state.ownership.leases import Lease

LOG = structlog.get_logger(__name__)


class ServerIndex:
    """The index of this server."""

    def __init__(
        self,
        settings: Settings,
        bootstrap_servers: str,
        engine: sa.Engine,
        *,
        snapshots: Snapshots | None,
        erased: ErasedKeys,
        member: str,
        shared: bool = False,
        note_arrivals: NoteArrivals | None = None,
    ) -> None:
        """Open the database; nothing is followed before `start`.

        Args:
            settings: The settings of the server.
            bootstrap_servers: The broker, "host:port".
            engine: Postgres, which has the lease of the right to write rows of aggregates for jobs.
            snapshots: The snapshots of the database, None if there are none.
            erased: The keys that are read as if they had never had a row.
            member: The name of this server, which stays the same after a restart.
            shared: True if other processes of this server read the database.
            note_arrivals: Is called with the arrivals of markers that the index reads
                (`caraway.dataplane.topics.markers`).

        Raises:
            ConflictError: Another process has the database open.
            UnavailableError: The folder can't be used.
        """
        self._store = IndexStore(
            settings.data_dir / "index", restore=None if snapshots is None else snapshots.restore, shared=shared
        )
        seconds = settings.server.snapshot_seconds
        self.keeper = SnapshotKeeper(snapshots, self._store, seconds) if seconds and snapshots is not None else None
        self._emission = EmissionRight(Lease(engine=engine, name=LEASE, owner=member), self._store)
        self._pasts = Pasts(bootstrap_servers, settings.objects_url)
        self._worker = IndexWorker(
            bootstrap_servers,
            self._store,
            erased,
            may_emit=self._emission.may_send,
            past_of=self._pasts,
            note_arrivals=note_arrivals,
        )
        self.rows: Reader[IndexPlan, bytes] = IndexReader(self._store, erased)
        # The indexes that `follow` was told to fill; None until the server has read the served graphs from Postgres.
        self._plans: Sequence[IndexPlan] | None = None
        self._emitting = False
        self._following = threading.Lock()

    def start(self) -> None:
        """Start to follow topics."""
        self._worker.start()

    def stop(self) -> None:
        """Stop following topics, and let other servers emit."""
        self._worker.stop()
        try:
            self._emission.release()
        except UnavailableError as error:
            LOG.info("another server can write rows of aggregates only after a while", reason=str(error))

    def close(self) -> None:
        """Close the database."""
        self._store.close()

    def follow(self, plans: Sequence[IndexPlan]) -> None:
        """Follow the topics of these indexes from now on, and no others."""
        with self._following:
            self._plans = plans
            self._follow()

    def renew_emission(self) -> None:
        """Renew or claim the right to write rows of aggregates; their topics are followed only with this right.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        try:
            self._emission.claim_or_renew()
        finally:
            emitting = self._emission.may_send()
            with self._following:
                if emitting is not self._emitting:
                    self._emitting = emitting
                    self._follow()

    def _follow(self) -> None:
        """Follow the indexes of the plans; those that emit rows only while this server has the right."""
        self._worker.set_plans([plan for plan in self._plans or () if plan.emits is None or self._emitting])

    def forget(self, gone: set[bytes]) -> None:
        """Remove the entries of indexes that are gone. Raises `UnavailableError` if Postgres doesn't answer."""
        for asset in self._store.assets() & gone - {plan.asset for plan in self._plans or ()}:
            self._store.drop(asset)
            LOG.info("forgot an index", asset=asset.hex())

    def purge(self, gone: set[bytes], stopping: threading.Event) -> bool:
        """Remove the entries of indexes that are gone from the files and snapshots, too; return whether that is done.

        Callers repeat the call until it is. Raises `UnavailableError` if the database refuses.
        """
        self.forget(gone)
        if not all(compact(store, asset, stopping) for store in self._stores() for asset in sorted(gone)):
            return False
        # A list, so that all keepers are asked at once: `all` would stop at the first one that hasn't taken its
        # snapshot yet.
        renewed = [keeper.renew(frozenset(gone)) for keeper in self._keepers()]
        return all(renewed)

    def _stores(self) -> list[IndexStore]:
        """Return the open databases of this server."""
        return [self._store]

    def _keepers(self) -> list[SnapshotKeeper]:
        """Return the keepers of the snapshots of these databases."""
        return [] if self.keeper is None else [self.keeper]

    def lag(self, asset: str) -> str:
        """Return the reason why an index hasn't caught up with its topic, "" if it has."""
        name = asset.partition(EMITS)[0]
        for status in self._worker.positions():
            if status.asset == name:
                if status.following and status.lag == 0:
                    return ""
                return f"the index is {'?' if status.lag is None else status.lag} records behind"
        return "the index isn't followed yet"

    def status(self) -> dict[str, object]:
        """Return the state of the index, as plain values."""
        return self._worker.status()

    def positions(self) -> list[IndexStatus]:
        """Return how far each index of this server is."""
        return self._worker.positions()

    def advance_clock(self, asset: bytes, time_us: int, goal: Mapping[int, int]) -> "list[Future[bool]]":
        """Close the windows of an index by the clock, in each of its parts here; see `IndexWorker.advance_clock`."""
        return [self._worker.advance_clock(asset, time_us, goal)]

    def expire(self, asset: bytes, horizon_us: int, stopping: threading.Event) -> int:
        """Remove superseded versions of an index; see `IndexWorker.expire`."""
        return self._worker.expire(asset, horizon_us, stopping)

    def erasures(self, *, pending: bool) -> list[tuple[IndexPlan, list[Erasure]]]:
        """Return the erased keys of each index: those of which entries may be left here, or all others."""
        return self._worker.erasures(pending=pending)

    def remove_erased(self, plan: IndexPlan, stopping: threading.Event) -> bool:
        """Remove the entries of erased keys from an index; see `IndexWorker.remove_erased`."""
        return self._worker.remove_erased(plan, stopping)

    def warning(self) -> str:
        """Return that indexes lack records of their topics, or topics records of theirs, and the remedy; "" if not."""
        return "; ".join(filter(None, [left_out(self.positions()), *self._lost()]))

    def lost_topics(self) -> list[str]:
        """Return the topics that lacked records which an index had read, since the start."""
        return self._worker.lost_topics()

    def _lost(self) -> list[str]:
        return self._worker.lost()

    def problem(self) -> str | None:
        """Return the reason why the index can't be read; None if it can."""
        return self._worker.problem()
