"""The shards of a divided index on this server, with the threads and calls that they need (decision 23)."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from pathlib import Path

import sqlalchemy as sa
import structlog

from caraway.cluster.shards import shard_member
from caraway.config import ConfigurationError, Settings
from caraway.erasure.keys import ErasedKeys, Erasure
from caraway.errors import UnavailableError
from caraway.index import IndexStatus, IndexWorker
from caraway.index.feeding.worker import merged, spelled
from caraway.objects import ObjectFolder
from caraway.plan.model import IndexPlan
from caraway.recurring import Recurring
from caraway.secrets.keyring import Keyring
from caraway.sharding.divided import DividedIndex
from caraway.sharding.keys import is_divided
from caraway.sharding.shard import Shard
from caraway.sharding.shard_clients import ShardClients
from caraway.sharding.shard_owner import ShardOwner
from caraway.sharding.shard_server import ShardServer
from caraway.sharding.topics import Topics

LOG = structlog.get_logger(__name__)

# Interval between two rounds of the shards. Other servers know a max event time that moves here after two rounds, and a
# new owner after one.
INTERVAL_S = 0.2
# Bound on the shards that are opened or closed at the same time.
THREADS = 2
STOP_S = 3.0


class ServerShards:
    """The shards of this server, the client of other servers' shards, and the server for their calls."""

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
        whole: IndexWorker,
    ) -> None:
        """Build the parts; nothing runs before `start`. An earlier process with this data folder must have ended.

        `whole` follows the indexes that aren't divided.

        Raises:
            ConfigurationError: The index isn't to be divided.
            UnavailableError: The address for other servers can't be listened on.
        """
        index, shards = settings.index, settings.index.shards
        if shards is None:
            raise ConfigurationError("index.shards: the index isn't divided")
        self._shards = shards
        self._whole = whole
        self._member = shard_member(engine, member, shards)
        self._topics = Topics(bootstrap_servers)
        passes = [_pass(key.mac_key) for key in keyring.keys]
        self._shard_server = ShardServer(lambda: passes, index.host, index.port)
        # Calls prove the oldest key, because servers that haven't been given the newest key yet know it too.
        self._clients = ShardClients(lambda: passes[-1])
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="index-shards")
        self._open: Callable[[int], Shard] = lambda number: Shard(
            number,
            shards,
            _folder(settings.data_dir, number, shards),
            self._topics,
            objects=objects,
            snapshot_seconds=settings.server.snapshot_seconds,
            erased=erased,
            elsewhere=partial(self._shard_owner.elsewhere, number),
        )
        self._shard_owner = ShardOwner(
            self._member,
            shards,
            self._open,
            self._threads.submit,
            address=index.address or f"{index.host}:{self._shard_server.port}",
            lasting=timedelta(seconds=index.lease_seconds),
            clock=_clock,
        )
        self._plans: Sequence[IndexPlan] = ()
        self.index = DividedIndex(self._shard_owner, shards, self._topics.partitions, self._clients, erased)
        self._recurring = Recurring("index-share", self._reconcile, INTERVAL_S, at_once=True)

    def start(self) -> None:
        """Start; the tables in Postgres may be created later."""
        self._shard_server.start(self._shard_owner.answer)
        self._recurring.start()

    def stop(self) -> None:
        """Stop, and release the shards to other servers at once."""
        self._recurring.stop(STOP_S)
        try:
            self._shard_owner.end()
        except UnavailableError as error:
            LOG.info("others can have the shards of the index only after a while", reason=str(error))
        self._shard_server.stop()
        self._clients.close()
        self._threads.shutdown(wait=False)

    def set_plans(self, plans: Sequence[IndexPlan]) -> None:
        """Index those of these plans that are divided from now on, and no others."""
        self._plans = [plan for plan in plans if is_divided(plan)]
        self._shard_owner.follow(self._plans)
        self._recurring.wake()

    def problem(self) -> str | None:
        """Return the reason why a part of the index can't be read; None if no such part is known here."""
        for number, shard in sorted(self._shard_owner.open_shards().items()):
            if (reason := shard.worker.problem()) is not None:
                return f"shard {number}: {reason}"
        division = self._shard_owner.division
        owned = {number for number, owner in division.owners.items() if owner.member in division.addresses}
        missing = [str(number) for number in range(self._shards) if number not in owned]
        return f"no server owns these shards: {', '.join(missing)}" if missing and self._plans else None

    def has(self, asset: str) -> bool:
        """Return whether an index is divided."""
        return any(plan.asset.hex() == asset for plan in self._plans)

    def lag(self, asset: str) -> str:
        """Return the reason why an index hasn't caught up with its topic in all shards, "" if it has."""
        progress = self._shard_owner.division.progress
        behind = []
        for number in range(self._shards):
            reached = progress.get(number, {}).get(asset)
            if reached is None or not reached.caught_up:
                behind.append(str(number))
        return f"the index is behind in these shards: {', '.join(behind)}" if behind else ""

    def positions(self) -> list[IndexStatus]:
        """Return how far each index is: the divided ones in this server's shards, and the whole ones."""
        shards = [status for shard in self._shard_owner.open_shards().values() for status in shard.worker.positions()]
        return [*merged(shards), *self._whole.positions()]

    def status(self) -> dict[str, object]:
        """Return the state of this server's shards, and the owners of all shards, as plain values."""
        stored, division = self._shard_owner.open_shards(), self._shard_owner.division
        return {
            "alive": all(shard.worker.is_alive() for shard in stored.values()),
            "bytes_on_disk": sum(shard.store.size_bytes() for shard in stored.values()),
            "shards": {
                "count": self._shards,
                "here": sorted(self._shard_owner.owned()),
                "owners": {str(number): owner.member for number, owner in sorted(division.owners.items())},
                "servers": dict(division.addresses),
            },
            "indexes": [spelled(status) for status in self.positions()],
        }

    def expire(self, asset: bytes, horizon_us: int, stopping: threading.Event) -> int:
        """Remove superseded versions from the shards of this server; see `IndexWorker.expire`."""
        return sum(
            shard.worker.expire(asset, horizon_us, stopping) for shard in self._shard_owner.open_shards().values()
        )

    def erasures(self, *, pending: bool) -> list[tuple[IndexPlan, list[Erasure]]]:
        """Return the erased keys of each index: those of which entries may be left here, or all others."""
        workers = [shard.worker for shard in self._shard_owner.open_shards().values()]
        whole, left = self._whole.erasures(pending=pending), _united(workers, pending=True)
        if pending:
            return [*whole, *((plan, list(erasures)) for plan, erasures in left.values())]
        divided = [
            (plan, [erasure for erasure in erasures if erasure not in left.get(asset, (plan, {}))[1]])
            for asset, (plan, erasures) in _united(workers, pending=False).items()
        ]
        return [*whole, *divided]

    def remove_erased(self, plan: IndexPlan, stopping: threading.Event) -> bool:
        """Remove the entries of erased keys from the shards of this server; see `IndexWorker.remove_erased`."""
        if not is_divided(plan):
            return self._whole.remove_erased(plan, stopping)
        # All shards are tried, so that one that is behind doesn't keep the entries of the others.
        removed = [shard.worker.remove_erased(plan, stopping) for shard in self._shard_owner.open_shards().values()]
        return all(removed)

    def forget(self, assets: set[bytes]) -> None:
        """Remove the entries of indexes that are gone.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
        gone = assets - {plan.asset for plan in self._plans}
        found = set()
        for shard in self._shard_owner.open_shards().values():
            for asset in shard.store.assets() & gone:
                shard.store.drop(asset)
                found.add(asset.hex())
        if found:
            self._member.forget_progress(found)

    def _reconcile(self) -> None:
        self._shard_owner.reconcile()
        self._clients.keep(set(self._shard_owner.division.addresses.values()))
        self._topics.learn({plan.topic for plan in self._plans})


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


def _folder(data_dir: Path, number: int, shards: int) -> Path:
    return data_dir / "index-shards" / f"{number}-of-{shards}"


def _clock() -> float:
    """Return a time in seconds that goes on while the machine sleeps, if the system has such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
