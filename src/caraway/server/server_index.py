"""The index of a server: its database, the threads that fill it, and its shards if the index is divided."""

import threading
from collections.abc import Collection, Sequence

import sqlalchemy as sa
import structlog

from caraway.cluster.leases import Lease
from caraway.config import Settings
from caraway.erasure.keys import ErasedKeys
from caraway.errors import UnavailableError
from caraway.index import IndexReader, IndexStatus, IndexStore, IndexWorker
from caraway.index.storage.snapshots import SnapshotKeeper, Snapshots
from caraway.objects import ObjectFolder
from caraway.plan.model import IndexPlan
from caraway.query.model import Reader
from caraway.secrets.keyring import Keyring
from caraway.server.emitting import LEASE, EmissionRight
from caraway.sharding.keys import is_divided
from caraway.sharding.server_shards import ServerShards
from caraway.state.blueprints import EMITS

LOG = structlog.get_logger(__name__)


class ServerIndex:
    """The index of this server."""

    def __init__(
        self,
        settings: Settings,
        bootstrap_servers: str,
        engine: sa.Engine,
        *,
        objects: ObjectFolder,
        erased: ErasedKeys,
        keyring: Keyring,
        member: str,
        shared: bool,
    ) -> None:
        """Open the database; nothing is followed before `start`.

        Args:
            settings: The settings of the server.
            bootstrap_servers: The broker, "host:port".
            engine: Postgres, which has the owners of shards and of the right to emit.
            objects: The object store with the snapshots.
            erased: The keys that are read as if they had never had a row.
            keyring: The deployment's keys.
            member: The name of this server, which stays the same after a restart.
            shared: True if other processes of this server read the database.

        Raises:
            ConflictError: Another process has the database open.
            UnavailableError: The folder can't be used.
        """
        divided, seconds = settings.index.shards is not None, settings.server.snapshot_seconds
        snapshots = Snapshots(objects)
        # If the index is divided, this store holds only the indexes whose rows are written for jobs, and these have no
        # snapshots.
        self._store = IndexStore(
            settings.data_dir / "index", restore=None if divided else snapshots.restore, shared=shared
        )
        self.keeper = SnapshotKeeper(snapshots, self._store, seconds) if seconds and not divided else None
        self._emission = EmissionRight(Lease(engine=engine, name=LEASE, owner=member), self._store)
        self._worker = IndexWorker(bootstrap_servers, self._store, erased, may_emit=self._emission.may_send)
        self._shards: ServerShards | None = None
        self.rows: Reader[IndexPlan, bytes] = IndexReader(self._store, erased)
        if divided:
            self._shards = ServerShards(
                settings,
                bootstrap_servers,
                engine,
                objects=objects,
                erased=erased,
                keyring=keyring,
                member=member,
                whole=self._worker,
            )
            self.rows = self._shards.index
        self.removing: IndexWorker | ServerShards = self._shards or self._worker
        """The part that removes expired versions and erased keys."""
        # The plans are None before the graph was read.
        self._plans: Sequence[IndexPlan] | None = None
        self._emitting = False
        self._following = threading.Lock()

    def start(self) -> None:
        """Start to follow topics."""
        self._worker.start()
        if self._shards is not None:
            self._shards.start()
        if self.keeper is not None:
            self.keeper.start()

    def stop(self) -> None:
        """Stop following topics, and let other servers emit."""
        self._worker.stop()
        if self._shards is not None:
            self._shards.stop()
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
            if self._shards is not None:
                self._shards.set_plans(plans)

    def renew_emission(self) -> None:
        """Renew or claim the right to write rows of aggregates; their topics are followed only with this right.

        Raises:
            UnavailableError: Postgres doesn't answer.
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
        """Follow the indexes that this server has as a whole; those that emit rows only while it has the right."""
        self._worker.set_plans([plan for plan in self._whole() if plan.emits is None or self._emitting])

    def _whole(self) -> list[IndexPlan]:
        return [plan for plan in self._plans or () if self._shards is None or not is_divided(plan)]

    def forget(self, gone: Collection[bytes]) -> None:
        """Remove the entries of indexes that are gone, and of those that became divided.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
        with self._following:
            plans, whole = self._plans, {plan.asset for plan in self._whole()}
        for asset in self._store.assets() & set(gone) - {plan.asset for plan in plans or ()}:
            self._store.drop(asset)
            LOG.info("forgot an index", asset=asset.hex())
        if self._shards is not None:
            self._shards.forget(set(gone))
            if plans is not None:
                # Entries of indexes that are divided now date from the time before the index was divided.
                for asset in self._store.assets() - whole:
                    self._store.drop(asset)

    def lag(self, asset: str) -> str:
        """Return the reason why an index hasn't caught up with its topic, "" if it has."""
        name, emits, _ = asset.partition(EMITS)
        if self._shards is not None and not emits and self._shards.has(name):
            return self._shards.lag(name)
        for status in self._worker.positions():
            if status.asset == name:
                if status.following and status.lag == 0:
                    return ""
                return f"the index is {'?' if status.lag is None else status.lag} records behind"
        return "the index isn't followed yet"

    def status(self) -> dict[str, object]:
        """Return the state of the index, as plain values."""
        return self.removing.status()

    def positions(self) -> list[IndexStatus]:
        """Return how far each index of this server is."""
        return self.removing.positions()

    def problem(self) -> str | None:
        """Return the reason why the index can't be read; None if it can."""
        return self._worker.problem() or (None if self._shards is None else self._shards.problem())
