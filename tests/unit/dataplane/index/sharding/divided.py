"""An index that is divided among servers in one process.

Databases, snapshots and shard owners are real; topic, clock and registry are simulated and set by the tests.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.records.closing_time import stored_closing_time
from caraway.dataplane.index.sharding.divided import DividedIndex
from caraway.dataplane.index.sharding.messages import Answer, Ask, Found, decode_answers, decode_asks, encode
from caraway.dataplane.index.sharding.shard import Shard
from caraway.dataplane.index.sharding.shard_owner import ShardOwner
from caraway.dataplane.index.sharding.topics import Ends
from caraway.dataplane.index.storage.intervals import has_max_event_time
from caraway.dataplane.index.storage.snapshots import Snapshots
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.topics.partitioning import partition_of
from caraway.errors import UnavailableError
from caraway.graph.plan.model import IndexPlan
from caraway.state.ownership.leases import Lease
from caraway.state.ownership.members import Group, node_of
from caraway.state.ownership.shards import Division, ShardMember, ShardProgress
from tests.unit.dataplane.index.naive import CODEC, SMALL, Sent
from tests.unit.state.ownership.members import NO_DATABASE, MemoryMember, Table

SHARDS, PARTITIONS = 2, 3
LASTING = timedelta(seconds=10)
GROUP = Group(members="server/", things="shard/")


def partition_of_key(key: str) -> int:
    return partition_of(CODEC.encode_key([key]) or b"", PARTITIONS)


@dataclass
class World:
    """The state that all servers share: the topic by partition, the time, the object store, and Postgres."""

    folder: Path
    now: float = 1_700_000_000.0
    topic: list[list[Sent]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    postgres: bool = True
    table: Table = field(default_factory=Table)
    # The time until which each server is a member.
    until: dict[str, float] = field(default_factory=dict)
    progress: dict[int, dict[str, tuple[int, ShardProgress]]] = field(default_factory=dict)
    servers: "dict[str, Server]" = field(default_factory=dict)
    # The greatest offset of each partition whose rows a read has shown, and the same at the time at which a token was
    # given.
    shown: dict[int, int] = field(default_factory=dict)
    floors: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    # The offsets of the shard that answered last.
    answered_at: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.objects = ObjectFolder(str(self.folder / "objects"))

    def clock(self) -> float:
        return self.now

    def send(self, sent: Sent) -> None:
        self.topic[partition_of_key(sent.key)].append(sent)

    def alive(self, member: str) -> bool:
        self.expire()
        return member in self.table.members

    def reach(self) -> None:
        """Begin to use Postgres."""
        if not self.postgres:
            raise UnavailableError("Postgres is away")
        self.expire()

    def expire(self) -> None:
        """End the memberships whose time is over."""
        for server, until in self.until.items():
            if until <= self.now:
                self.table.alive.pop(server, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLease(Lease):
    """The lease of a server, by the clock of the world."""

    world: World

    @override
    def claim(self, lasting: timedelta, *, succeeds: bool) -> int | None:
        self.world.reach()
        assert succeeds
        self.world.until[self.owner] = self.world.now + lasting.total_seconds()
        return self.world.table.join(self.owner).token

    @override
    def renew(self, token: int, lasting: timedelta) -> bool:
        self.world.reach()
        if self.world.table.tokens[self.owner] != token:
            return False
        self.world.table.alive[self.owner] = token
        self.world.until[self.owner] = self.world.now + lasting.total_seconds()
        return True

    @override
    def release(self, token: int) -> None:
        self.world.reach()
        if self.world.table.tokens[self.owner] == token:
            self.world.until[self.owner] = self.world.now - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldMember(ShardMember):
    """A server that shares the index by the rules of `ShardMember`, without a database."""

    world: World

    @property
    @override
    def lease(self) -> Lease:
        return MemoryLease(engine=self.engine, name=self.node, owner=self.node, world=self.world)

    @override
    def announce(self, address: str) -> None:
        self.world.reach()
        assert address == self.node

    @override
    def look_at_shards(self) -> Division:
        self.world.reach()
        seen = self._in_memory().look()
        return Division(
            addresses={member: node_of(member) for member in seen.members},
            owners={int(shard): owned for shard, owned in seen.owned.items()},
            progress={s: {a: reported for a, (_, reported) in of.items()} for s, of in self.world.progress.items()},
        )

    @override
    def take_over(self, thing: str, seen: int) -> int | None:
        self.world.reach()
        token = self._in_memory().take_over(thing, seen)
        if token is not None:
            self.world.floors[int(thing), token] = dict(self.world.shown)
        return token

    @override
    def report(self, shard: int, token: int, progress: Mapping[str, ShardProgress]) -> None:
        self.world.reach()
        reported = self.world.progress.setdefault(shard, {})
        for asset, reached in progress.items():
            if asset not in reported or reported[asset][0] <= token:
                reported[asset] = token, reached

    def _in_memory(self) -> MemoryMember:
        table = self.world.table
        return MemoryMember(engine=self.engine, group=self.group, node=self.node, token=self.token, table=table)


class TestShard(Shard):
    """A shard that follows its topic only when a test says so."""

    __test__ = False

    def __init__(self, world: World, folder: Path, number: int, elsewhere: Callable[[bytes], int | None]) -> None:
        self.world = world
        self.number = number
        self.plans: dict[bytes, IndexPlan] = {}
        self.partitions = [p for p in range(PARTITIONS) if p % SHARDS == number]
        self.snapshots = Snapshots(world.objects, kept=2, clock=world.clock, part=f"shard-{number}")
        path = folder / f"shard-{number}"
        self.store = IndexStore(path, geometry=SMALL, cache_bytes=1 << 20, restore=self.snapshots.restore)
        self.writer = IndexWriter(self.store, cached_tiles=8)
        self.reader = IndexReader(self.store, elsewhere=elsewhere)
        self.due: Ends = self.ends()

    def pull(self, count: int) -> None:
        for plan in self.plans.values():
            offsets = self.offsets(plan.asset)
            for partition in self.partitions:
                start = offsets[partition]
                taken = self.world.topic[partition][start : start + count]
                messages = [(*sent.message(0)[:2], partition, start + place) for place, sent in enumerate(taken)]
                if messages:
                    self.writer.apply(plan, messages)

    def offsets(self, asset: bytes) -> dict[int, int]:
        return dict.fromkeys(self.partitions, 0) | self.store.offsets(asset)

    @override
    def follow(self, plans: Sequence[IndexPlan]) -> None:
        self.plans = {plan.asset: plan for plan in plans}

    @override
    def reconcile(self) -> None:
        pass

    @override
    def is_caught_up(self) -> bool:
        return self.has_reached(self.due)

    @override
    def ends(self) -> Ends:
        return {"topic": {partition: len(self.world.topic[partition]) for partition in self.partitions}}

    @override
    def has_reached(self, ends: Ends) -> bool:
        return all(
            self.offsets(plan.asset)[partition] >= end
            for plan in self.plans.values()
            for partition, end in ends[plan.topic].items()
        )

    @override
    def is_filled(self, asset: bytes) -> bool:
        return asset in self.plans and self.has_reached(self.due)

    @override
    def closing_time(self, asset: bytes) -> int | None:
        return stored_closing_time(self.store, asset)

    @override
    def progress(self) -> Mapping[str, ShardProgress]:
        return {
            plan.asset.hex(): ShardProgress(
                caught_up=True, closing_us=self.closing_time(plan.asset) if has_max_event_time(plan) else None
            )
            for plan in self.plans.values()
        }

    @override
    def close(self, *, forget: bool) -> None:
        self.store.close()
        if forget:
            shutil.rmtree(self.store.path)


class WatchedShardOwner(ShardOwner):
    """An owner that checks each of its answers: it is still a member, and no row that was shown before is missing."""

    def __init__(self, world: World, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._world = world

    @override
    def answer(self, ask: Ask) -> Answer:
        answer = super().answer(ask)
        if isinstance(answer, Found):
            world, shard = self._world, self.open_shards()[ask.shard]
            assert isinstance(shard, TestShard)
            assert world.alive(self.member or "")
            world.answered_at = shard.offsets(ask.asset)
            floor = world.floors[ask.shard, ask.token]
            for partition, offset in world.answered_at.items():
                assert offset >= floor.get(partition, 0)
                world.shown[partition] = max(offset, world.shown.get(partition, 0))
        return answer


def at_once(work: Callable[[], object]) -> "Future[object]":
    done: Future[object] = Future()
    try:
        done.set_result(work())
    except Exception as error:  # noqa: BLE001 (as an executor does)
        done.set_exception(error)
    return done


class Server:
    """A server from its start to its end."""

    def __init__(self, world: World, name: str, plan: IndexPlan) -> None:
        self.world = world
        self.name = name
        self.plan = plan
        self.folder = world.folder / name
        self.connected = True
        self.calls = 0
        self.open: dict[int, TestShard] = {}
        self.start()

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.shard_owner = WatchedShardOwner(
            self.world,
            WorldMember(engine=NO_DATABASE, group=GROUP, node=self.name, shards=SHARDS, world=self.world),
            SHARDS,
            self._opened,
            at_once,
            address=self.name,
            lasting=LASTING,
            clock=self.world.clock,
        )
        self.index = DividedIndex(self.shard_owner, SHARDS, {"topic": PARTITIONS}.get, self.call)
        self.shard_owner.follow([self.plan])

    def _opened(self, number: int) -> TestShard:
        return TestShard(self.world, self.folder, number, partial(self.shard_owner.elsewhere, number))

    def shards(self) -> dict[int, TestShard]:
        return {n: shard for n, shard in self.shard_owner.open_shards().items() if isinstance(shard, TestShard)}

    def reconcile(self) -> None:
        """Run one round; an outage of Postgres is no failure of the test."""
        try:
            self.shard_owner.reconcile()
        except UnavailableError:
            assert not self.world.postgres

    def answer(self, ask: Ask) -> Answer:
        return self.shard_owner.answer(ask)

    def call(self, address: str, asks: Sequence[Ask]) -> "Future[list[Answer]]":
        """Return the answers of another server, to which question and answers are passed as bytes."""
        self.calls += 1
        other = self.world.servers.get(address)
        done: Future[list[Answer]] = Future()
        if other is None or not (self.connected and other.connected):
            done.set_exception(UnavailableError("it doesn't answer"))
            return done
        answers = [other.answer(ask) for ask in decode_asks(encode(list(asks)))]
        done.set_result(decode_answers(encode(answers)))
        return done

    def kill(self) -> None:
        """End like a killed process: only what was written is left."""
        image = self.folder.with_name("image")
        shutil.copytree(self.folder, image)
        for shard in self.shards().values():
            shard.store.close()
        shutil.rmtree(self.folder)
        image.rename(self.folder)
        del self.world.servers[self.name]

    def end(self) -> None:
        """End in good order."""
        try:
            self.shard_owner.end()
        except UnavailableError:
            assert not self.world.postgres
        del self.world.servers[self.name]
