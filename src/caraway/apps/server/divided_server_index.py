"""The index of a server that shares it with others, with the threads and calls that its shards need (decision 23)."""

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from hashlib import blake2b

import sqlalchemy as sa
import structlog
from typing_extensions import override

from caraway.apps.server.server_index import ServerIndex
from caraway.dataplane.index.feeding.worker import IndexStatus, IndexWorker, merged, spelled
from caraway.dataplane.index.sharding.divided import DividedIndex
from caraway.dataplane.index.sharding.keys import is_divided
from caraway.dataplane.index.sharding.shard import Shard
from caraway.dataplane.index.sharding.shard_calls import Identity, ShardClients, ShardServer
from caraway.dataplane.index.sharding.shard_owner import ShardOwner
from caraway.dataplane.index.sharding.topics import Topics
from caraway.dataplane.index.storage.snapshots import SnapshotKeeper
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.errors import UnavailableError
from caraway.graph.erase_keys import Erasure
from caraway.graph.plan.model import IndexPlan
from caraway.process.recurring import Recurring
from caraway.process.secrets.keyring import Keyring
from caraway.process.settings.settings import Settings
from caraway.state.ownership.shards import shard_member

LOG = structlog.get_logger(__name__)

# Seconds between two rounds of the shards, in which a server writes its progress to Postgres and reads that of the
# others. Others know a max event time that moves here after two rounds (this server writes it in one, and they read it
# in the next), and a new owner after one.
INTERVAL_S = 0.2
# The most shards that are opened or closed at the same time, each in a thread. A shard may be restored from a snapshot
# first, which takes long and must not hold up the rounds.
THREADS = 2
STOP_S = 3.0


class DividedServerIndex(ServerIndex):
    """The index of this server if it is divided: its shards, and the calls by which servers read each other's shards.

    An index whose rows are written for jobs isn't divided: it is whole on the server that has the right to write them.
    """

    def __init__(
        self,
        settings: Settings,
        bootstrap_servers: str,
        engine: sa.Engine,
        *,
        objects: ObjectFolder,
        erased: ErasedKeys,
        member: str,
        keyring: Keyring,
        shards: int,
    ) -> None:
        """Build the parts; nothing runs before `start`. An earlier process with this data folder must have ended.

        The arguments are those of `ServerIndex`; `keyring` has the deployment's keys, and `shards` is the number of
        shards of all servers.

        Raises:
            ConfigurationError: The certificate for other servers can't be used.
            ConflictError: Another process has a database open.
            UnavailableError: A folder can't be used, or the address for other servers can't be listened on.
        """
        # In a divided server, `ServerIndex` holds only the indexes that write rows of aggregates to a topic for jobs.
        # They aren't restored from snapshots, because a snapshot doesn't know which rows were written after it; they
        # are built anew from their topic.
        super().__init__(settings, bootstrap_servers, engine, snapshots=None, erased=erased, member=member)
        self._settings = settings
        self._objects = objects
        self._erased = erased
        self._shards = shards
        self._member = shard_member(engine, member, shards)
        self._topics = Topics(bootstrap_servers)
        index, passes = settings.index, [_pass(key.mac_key) for key in keyring.keys]
        identity = Identity.of(index)
        self._shard_server = ShardServer(lambda: passes, index.host, index.port, identity)
        # A call proves that its sender has the oldest key, the last in the keyring. Servers that haven't been given the
        # newest key yet have the oldest one, so they accept the call, too.
        self._clients = ShardClients(lambda: passes[-1], identity)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="index-shards")
        self._shard_owner = ShardOwner(
            self._member,
            shards,
            self._open,
            self._threads.submit,
            address=index.address or f"{index.host}:{self._shard_server.port}",
            lasting=timedelta(seconds=index.lease_seconds),
            clock=_clock,
        )
        self._open_shards = self._shard_owner.open_shards
        self._divided: Sequence[IndexPlan] = ()
        self.rows = DividedIndex(self._shard_owner, shards, self._topics.partitions, self._clients.call, erased)
        self._recurring = Recurring("index-share", self._reconcile, INTERVAL_S, at_once=True)

    @override
    def start(self) -> None:
        super().start()
        # The tables in Postgres may not exist yet. Rounds fail until they do and are repeated, so the start needn't
        # wait.
        self._shard_server.start(self._shard_owner.answer)
        self._recurring.start()

    @override
    def stop(self) -> None:
        super().stop()
        self._recurring.stop(STOP_S)
        try:
            self._shard_owner.end()
        except UnavailableError as error:
            LOG.info("others can have the shards of the index only after a while", reason=str(error))
        self._shard_server.stop()
        self._clients.close()
        self._threads.shutdown(wait=False)

    @override
    def follow(self, plans: Sequence[IndexPlan]) -> None:
        super().follow([plan for plan in plans if not is_divided(plan)])
        self._divided = [plan for plan in plans if is_divided(plan)]
        self._shard_owner.follow(self._divided)
        self._recurring.wake()

    @override
    def forget(self, gone: set[bytes]) -> None:
        super().forget(gone)
        found = set()
        for shard in self._open_shards().values():
            for asset in shard.store.assets() & gone - {plan.asset for plan in self._divided}:
                shard.store.drop(asset)
                found.add(asset.hex())
        if found:
            self._member.forget_progress(found)
        if self._plans is not None:
            # The database of `ServerIndex` needs only entries of indexes that aren't divided. Entries of divided ones
            # date from the time before `index.shards` was set, and are removed once the plans are known.
            super().forget(self._store.assets())

    @override
    def _stores(self) -> list[IndexStore]:
        return [*super()._stores(), *(shard.store for shard in self._open_shards().values())]

    @override
    def _keepers(self) -> list[SnapshotKeeper]:
        shards = [shard.keeper for shard in self._open_shards().values() if shard.keeper is not None]
        return [*super()._keepers(), *shards]

    @override
    def lag(self, asset: str) -> str:
        if not any(plan.asset.hex() == asset for plan in self._divided):
            return super().lag(asset)
        progress = self._shard_owner.division.progress
        behind = []
        for number in range(self._shards):
            reached = progress.get(number, {}).get(asset)
            if reached is None or not reached.caught_up:
                behind.append(str(number))
        return f"the index is behind in these shards: {', '.join(behind)}" if behind else ""

    @override
    def problem(self) -> str | None:
        if (whole := super().problem()) is not None:
            return whole
        for number, shard in sorted(self._open_shards().items()):
            if (reason := shard.worker.problem()) is not None:
                return f"shard {number}: {reason}"
        division = self._shard_owner.division
        owned = {number for number, owner in division.owners.items() if owner.member in division.addresses}
        missing = [str(number) for number in range(self._shards) if number not in owned]
        return f"no server owns these shards: {', '.join(missing)}" if missing and self._divided else None

    @override
    def lost_topics(self) -> list[str]:
        return [topic for shard in self._open_shards().values() for topic in shard.worker.lost_topics()]

    @override
    def _lost(self) -> list[str]:
        return [text for shard in self._open_shards().values() for text in shard.worker.lost()] + super()._lost()

    @override
    def positions(self) -> list[IndexStatus]:
        shards = [status for shard in self._open_shards().values() for status in shard.worker.positions()]
        return [*merged(shards), *super().positions()]

    @override
    def status(self) -> dict[str, object]:
        shards, division = self._open_shards(), self._shard_owner.division
        return {
            "alive": all(shard.worker.is_alive() for shard in shards.values()),
            "bytes_on_disk": sum(shard.store.size_bytes() for shard in shards.values()),
            "shards": {
                "count": self._shards,
                "here": sorted(self._shard_owner.owned()),
                "owners": {str(number): owner.member for number, owner in sorted(division.owners.items())},
                "servers": dict(division.addresses),
            },
            "indexes": [spelled(status) for status in self.positions()],
        }

    @override
    def advance_clock(self, asset: bytes, time_us: int, goal: Mapping[int, int]) -> "list[Future[bool]]":
        if not any(plan.asset == asset for plan in self._divided):
            return super().advance_clock(asset, time_us, goal)
        return [shard.worker.advance_clock(asset, time_us, goal) for shard in self._open_shards().values()]

    @override
    def expire(self, asset: bytes, horizon_us: int, stopping: threading.Event) -> int:
        return sum(shard.worker.expire(asset, horizon_us, stopping) for shard in self._open_shards().values())

    @override
    def erasures(self, *, pending: bool) -> list[tuple[IndexPlan, list[Erasure]]]:
        workers = [shard.worker for shard in self._open_shards().values()]
        whole, left = super().erasures(pending=pending), _united(workers, pending=True)
        if pending:
            return [*whole, *((plan, list(erasures)) for plan, erasures in left.values())]
        divided = [
            (plan, [erasure for erasure in erasures if erasure not in left.get(asset, (plan, {}))[1]])
            for asset, (plan, erasures) in _united(workers, pending=False).items()
        ]
        return [*whole, *divided]

    @override
    def remove_erased(self, plan: IndexPlan, stopping: threading.Event) -> bool:
        if not is_divided(plan):
            return super().remove_erased(plan, stopping)
        # All shards are tried, so that one that is still catching up, and therefore removes nothing, doesn't keep the
        # entries of erased keys in the others.
        removed = [shard.worker.remove_erased(plan, stopping) for shard in self._open_shards().values()]
        return all(removed)

    def _open(self, number: int) -> Shard:
        return Shard(
            number,
            self._shards,
            self._settings.data_dir / "index-shards" / f"{number}-of-{self._shards}",
            self._topics,
            objects=self._objects,
            snapshot_seconds=self._settings.server.snapshot_seconds,
            erased=self._erased,
            elsewhere=partial(self._shard_owner.elsewhere, number),
            past_of=self._pasts,
        )

    def _reconcile(self) -> None:
        self._shard_owner.reconcile()
        self._clients.keep(set(self._shard_owner.division.addresses.values()))
        self._topics.learn({plan.topic for plan in self._divided})


def _united(workers: Sequence[IndexWorker], *, pending: bool) -> dict[bytes, tuple[IndexPlan, dict[Erasure, None]]]:
    """Return the erased keys of each index, merged over all shards."""
    found: dict[bytes, tuple[IndexPlan, dict[Erasure, None]]] = {}
    for worker in workers:
        for plan, erasures in worker.erasures(pending=pending):
            found.setdefault(plan.asset, (plan, {}))[1].update(dict.fromkeys(erasures))
    return found


def _pass(mac_key: bytes) -> bytes:
    """Return a proof that its sender has a key, which does not reveal the key."""
    return blake2b(b"reads of the index", key=mac_key, digest_size=32).digest()


def _clock() -> float:
    """Return a time in seconds that goes on while the machine sleeps, if the system has such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
