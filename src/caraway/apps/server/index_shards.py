"""The shards of an index that servers share, with the threads and calls that they need (decision 23)."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from hashlib import blake2b

import sqlalchemy as sa
import structlog

from caraway.apps.server.index_database import IndexDatabase
from caraway.compute.query.model import Reader
from caraway.dataplane.archive.store.past import Pasts
from caraway.dataplane.index.sharding.divided import DividedIndex
from caraway.dataplane.index.sharding.shard import Shard
from caraway.dataplane.index.sharding.shard_calls import Identity, ShardClients, ShardServer
from caraway.dataplane.index.sharding.shard_owner import ShardOwner
from caraway.dataplane.index.sharding.topics import Topics
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.errors import UnavailableError
from caraway.graph.plan.model import IndexPlan
from caraway.process.recurring import Recurring
from caraway.process.secrets.keyring import Keyring
from caraway.process.settings.settings import Settings
from caraway.state.losses import Losses
from caraway.state.ownership.shards import shard_member

LOG = structlog.get_logger(__name__)

# Seconds between two rounds of the shards, in which a server writes its progress to Postgres and reads that of the
# others. If a max event time moves on this server, the others know it after two rounds: this server writes it in one,
# and they read it in the next. The others know a new owner of a shard after one round.
INTERVAL_S = 0.2
# The most shards that are opened or closed at the same time, each in a thread. A shard may be restored from a snapshot
# first, which takes long and must not hold up the rounds.
THREADS = 2
STOP_S = 3.0


class IndexShards:
    """The shards of this server, and the calls by which servers read each other's shards.

    Attributes:
        rows: Reads the rows of divided indexes, on this server and on others.
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
        count: int,
    ) -> None:
        """Build the parts; nothing runs before `start`. An earlier process with this data folder must have ended.

        Args:
            settings: The settings of the server.
            bootstrap_servers: The broker, "host:port".
            engine: Postgres, which has the owners of shards, how far each shard is, and what topics have lost.
            objects: The object store, which has the snapshots of shards.
            erased: The keys that are read as if they had never had a row.
            member: The name of this server, which stays the same after a restart.
            keyring: The deployment's keys, by which servers know each other.
            count: The number of shards of all servers.

        Raises:
            ConfigurationError: The certificate for other servers can't be used.
            UnavailableError: The address for other servers can't be listened on.
        """
        self._settings = settings
        self._objects = objects
        self._erased = erased
        self._count = count
        self._pasts = Pasts(bootstrap_servers, settings.objects_url)
        self._note_loss = Losses(engine).note
        self._member = shard_member(engine, member, count)
        self._topics = Topics(bootstrap_servers)
        index, passes = settings.index, [_pass(key.mac_key) for key in keyring.keys]
        identity = Identity.of(index)
        self._server = ShardServer(lambda: passes, index.host, index.port, identity)
        # A call proves that its sender has the oldest key, which is the last in the keyring. A server that hasn't been
        # given the newest key yet has the oldest one, so it accepts the call, too.
        self._clients = ShardClients(lambda: passes[-1], identity)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="index-shards")
        self._owner = ShardOwner(
            self._member,
            count,
            self._open,
            self._threads.submit,
            address=index.address or f"{index.host}:{self._server.port}",
            lasting=timedelta(seconds=index.lease_seconds),
            clock=_clock,
        )
        self._plans: Mapping[bytes, IndexPlan] = {}
        self.rows: Reader[IndexPlan, bytes] = DividedIndex(
            self._owner, count, self._topics.partitions, self._clients.call, erased
        )
        self._recurring = Recurring("index-share", self._reconcile, INTERVAL_S, at_once=True)

    def start(self) -> None:
        """Start to open shards, and to answer other servers."""
        # The tables in Postgres may not exist yet. A round then fails and is repeated, so the start needn't wait for
        # the tables.
        self._server.start(self._owner.answer)
        self._recurring.start()

    def stop(self) -> None:
        """Close all shards, and let other servers have them."""
        self._recurring.stop(STOP_S)
        try:
            self._owner.end()
        except UnavailableError as error:
            LOG.info("others can have the shards of the index only after a while", reason=str(error))
        self._server.stop()
        self._clients.close()
        self._threads.shutdown(wait=False)

    def follow(self, plans: Sequence[IndexPlan]) -> None:
        """Have all shards follow the topics of these indexes from now on, and no others."""
        self._plans = {plan.asset: plan for plan in plans}
        self._owner.follow(plans)
        self._recurring.wake()

    def have(self, asset: bytes) -> bool:
        """Return whether an index is one of those that are followed."""
        return asset in self._plans

    def databases(self) -> list[IndexDatabase]:
        """Return the databases of the open shards."""
        return [
            IndexDatabase(store=shard.store, worker=shard.worker, keeper=shard.keeper, shard=(number, self._count))
            for number, shard in self._owner.open_shards().items()
        ]

    def forget(self, gone: set[bytes]) -> None:
        """Remove the entries of indexes that are gone. Raises `UnavailableError` if Postgres doesn't answer."""
        unneeded = gone - self._plans.keys()
        found = {asset.hex() for database in self.databases() for asset in database.drop(unneeded)}
        if found:
            self._member.forget_progress(found)

    def lag(self, asset: str) -> str:
        """Return the shards, of all servers, in which an index hasn't caught up with its topic; "" if it has."""
        progress = self._owner.division.progress
        behind = []
        for number in range(self._count):
            reached = progress.get(number, {}).get(asset)
            if reached is None or not reached.caught_up:
                behind.append(str(number))
        return f"the index is behind in these shards: {', '.join(behind)}" if behind else ""

    def problem(self) -> str | None:
        """Return the reason why some shard can't be read; None if all can."""
        for number, shard in sorted(self._owner.open_shards().items()):
            if (reason := shard.worker.problem()) is not None:
                return f"shard {number}: {reason}"
        division = self._owner.division
        owned = {number for number, owner in division.owners.items() if owner.member in division.addresses}
        missing = [str(number) for number in range(self._count) if number not in owned]
        return f"no server owns these shards: {', '.join(missing)}" if missing and self._plans else None

    def status(self) -> dict[str, object]:
        """Return the owners of all shards, as plain values."""
        division = self._owner.division
        return {
            "count": self._count,
            "here": sorted(self._owner.owned()),
            "owners": {str(number): owner.member for number, owner in sorted(division.owners.items())},
            "servers": dict(division.addresses),
        }

    def _open(self, number: int) -> Shard:
        return Shard(
            number,
            self._count,
            self._settings.data_dir / "index-shards" / f"{number}-of-{self._count}",
            self._topics,
            objects=self._objects,
            snapshot_seconds=self._settings.server.snapshot_seconds,
            erased=self._erased,
            elsewhere=partial(self._owner.elsewhere, number),
            past_of=self._pasts,
            note_loss=self._note_loss,
        )

    def _reconcile(self) -> None:
        self._owner.reconcile()
        self._clients.keep(set(self._owner.division.addresses.values()))
        self._topics.learn({plan.topic for plan in self._plans.values()})


def _pass(mac_key: bytes) -> bytes:
    """Return a proof that its sender has a key, which does not reveal the key."""
    return blake2b(b"reads of the index", key=mac_key, digest_size=32).digest()


def _clock() -> float:
    """Return a time in seconds that goes on while the machine sleeps, if the system has such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
