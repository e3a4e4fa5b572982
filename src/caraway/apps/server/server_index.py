"""The index of a server: its databases, and the right to write rows of aggregates for jobs."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import structlog

from caraway.apps.server.emitting import EmissionRight
from caraway.apps.server.index_database import IndexDatabase
from caraway.apps.server.index_shards import IndexShards
from caraway.compute.query.model import Reader
from caraway.dataplane.index.feeding.worker import IndexStatus, left_out, merged, spelled
from caraway.dataplane.index.records.removal import compact
from caraway.dataplane.index.sharding.keys import is_divided
from caraway.errors import UnavailableError
from caraway.graph.erase_keys import Erasure
from caraway.graph.plan.model import IndexPlan
from caraway.state.blueprints import EMITS

LOG = structlog.get_logger(__name__)


class ServerIndex:
    """The index of this server, over all of its open databases.

    One database has whole indexes. If the server shares its index with others, these are only the indexes whose rows
    are written for jobs, and each open shard is a further database, with a part of each other index.
    """

    def __init__(
        self,
        whole: IndexDatabase,
        emission: EmissionRight,
        rows: Reader[IndexPlan, bytes],
        shards: IndexShards | None = None,
    ) -> None:
        """Take over the open database; nothing is followed before `start`.

        Args:
            whole: The database of whole indexes.
            emission: The right to write rows of aggregates for jobs.
            rows: Reads the rows of all indexes.
            shards: The shards of this server; None if the index isn't divided.
        """
        self.keeper = whole.keeper
        self.rows = rows
        self._whole = whole
        self._emission = emission
        self._shards = shards
        # The indexes that the last call of `follow` named; None until the server has read the served graphs from
        # Postgres.
        self._plans: Sequence[IndexPlan] | None = None
        self._emitting = False
        self._following = threading.Lock()

    def start(self) -> None:
        """Start to follow topics."""
        self._whole.worker.start()
        if self._shards is not None:
            self._shards.start()

    def stop(self) -> None:
        """Stop following topics, and let other servers emit and have the shards."""
        self._whole.worker.stop()
        try:
            self._emission.release()
        except UnavailableError as error:
            LOG.info("another server can write rows of aggregates only after a while", reason=str(error))
        if self._shards is not None:
            self._shards.stop()

    def close(self) -> None:
        """Close the database of whole indexes; `stop` has closed the shards."""
        self._whole.store.close()

    def follow(self, plans: Sequence[IndexPlan]) -> None:
        """Follow the topics of these indexes from now on, and no others."""
        with self._following:
            self._plans = plans
            self._follow()
        if self._shards is not None:
            self._shards.follow([plan for plan in plans if is_divided(plan)])

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
        """Follow the whole indexes; those that emit rows only while this server has the right."""
        self._whole.worker.set_plans([plan for plan in self._whole_plans() if plan.emits is None or self._emitting])

    def forget(self, gone: set[bytes]) -> None:
        """Remove the entries of indexes that are gone. Raises `UnavailableError` if Postgres doesn't answer."""
        # The database of whole indexes may have entries of divided indexes, from the time before `index.shards` was
        # set. Once the plans are known, such entries are removed, too.
        outdated = set() if self._shards is None or self._plans is None else self._whole.store.assets()
        self._whole.drop((gone | outdated) - {plan.asset for plan in self._whole_plans()})
        if self._shards is not None:
            self._shards.forget(gone)

    def purge(self, gone: set[bytes], stopping: threading.Event) -> bool:
        """Remove the entries of indexes that are gone from the files and snapshots, too; return whether that is done.

        Callers repeat the call until it is. Raises `UnavailableError` if the database refuses.
        """
        self.forget(gone)
        databases = self.databases()
        if not all(compact(database.store, asset, stopping) for database in databases for asset in sorted(gone)):
            return False
        # The list asks all keepers at once. A generator in `all` would stop at the first keeper that hasn't taken its
        # snapshot yet.
        keepers = [database.keeper for database in databases if database.keeper is not None]
        renewed = [keeper.renew(frozenset(gone)) for keeper in keepers]
        return all(renewed)

    def lag(self, asset: str) -> str:
        """Return the reason why an index hasn't caught up with its topic, "" if it has."""
        name = asset.partition(EMITS)[0]
        if self._shards is not None and self._shards.have(bytes.fromhex(name)):
            return self._shards.lag(name)
        for status in self._whole.worker.positions():
            if status.asset == name:
                if status.following and status.lag == 0:
                    return ""
                loaded = ", and is loaded by files" if status.held else ""
                return f"the index is {'?' if status.lag is None else status.lag} records behind{loaded}"
        return "the index isn't followed yet"

    def status(self) -> dict[str, object]:
        """Return the state of the index, as plain values."""
        databases = self.databases()
        return {
            "alive": all(database.worker.is_alive() for database in databases),
            "bytes_on_disk": sum(database.store.size_bytes() for database in databases),
            **({} if self._shards is None else {"shards": self._shards.status()}),
            "indexes": [spelled(status) for status in self.positions()],
        }

    def positions(self) -> list[IndexStatus]:
        """Return how far each index of this server is."""
        return merged([status for database in self.databases() for status in database.worker.positions()])

    def advance_clock(self, asset: bytes, time_us: int, goal: Mapping[int, int]) -> "list[Future[bool]]":
        """Close the windows of an index by the clock, in each of its parts here; see `IndexWorker.advance_clock`."""
        return [database.worker.advance_clock(asset, time_us, goal) for database in self._databases_of(asset)]

    def expire(self, asset: bytes, horizon_us: int, stopping: threading.Event) -> int:
        """Remove superseded versions of an index; see `IndexWorker.expire`."""
        return sum(database.worker.expire(asset, horizon_us, stopping) for database in self._databases_of(asset))

    def erasures(self, *, pending: bool) -> list[tuple[IndexPlan, list[Erasure]]]:
        """Return the erased keys of each index: those of which entries may be left here, or all others."""
        found = self._erasures(pending=pending)
        # A key may be removed from one shard but not yet from another. The remaining keys are read after the removed
        # ones, so that a key whose erasure arrives between the two reads doesn't count as removed.
        left = {} if pending else self._erasures(pending=True)
        return [
            (plan, [erasure for erasure in erasures if erasure not in left.get(asset, (plan, {}))[1]])
            for asset, (plan, erasures) in found.items()
        ]

    def _erasures(self, *, pending: bool) -> dict[bytes, tuple[IndexPlan, dict[Erasure, None]]]:
        """Return the erased keys of each index, merged over all databases."""
        found: dict[bytes, tuple[IndexPlan, dict[Erasure, None]]] = {}
        for database in self.databases():
            for plan, erasures in database.worker.erasures(pending=pending):
                found.setdefault(plan.asset, (plan, {}))[1].update(dict.fromkeys(erasures))
        return found

    def remove_erased(self, plan: IndexPlan, stopping: threading.Event) -> bool:
        """Remove the entries of erased keys from an index; see `IndexWorker.remove_erased`."""
        # The list asks all shards. A shard that is still catching up removes nothing, and must not keep the others from
        # removing their entries of erased keys.
        removed = [database.worker.remove_erased(plan, stopping) for database in self._databases_of(plan.asset)]
        return all(removed)

    def warning(self) -> str:
        """Return that indexes lack records of their topics, and the remedy; "" if they don't."""
        return left_out(self.positions())

    def problem(self) -> str | None:
        """Return the reason why the index can't be read; None if it can."""
        return self._whole.worker.problem() or (None if self._shards is None else self._shards.problem())

    def _whole_plans(self) -> list[IndexPlan]:
        """Return the indexes that aren't divided."""
        return [plan for plan in self._plans or () if self._shards is None or not is_divided(plan)]

    def databases(self) -> list[IndexDatabase]:
        """Return all open databases."""
        return [*([] if self._shards is None else self._shards.databases()), self._whole]

    def _databases_of(self, asset: bytes) -> list[IndexDatabase]:
        """Return the open databases that have a part of an index."""
        if self._shards is not None and self._shards.have(asset):
            return self._shards.databases()
        return [self._whole]
