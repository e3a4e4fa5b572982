"""The index of a server over its databases: one, or that of whole indexes and two open shards of three.

The databases are real; what fills them, the owners of the shards and Postgres are stand-ins.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from caraway.apps.server.index_database import IndexDatabase
from caraway.apps.server.index_shards import IndexShards
from caraway.apps.server.server_index import ServerIndex
from caraway.dataplane.index.feeding.worker import IndexStatus
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.sharding.divided import DividedIndex
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.errors import UnavailableError
from caraway.graph.erase_keys import Erasure
from caraway.graph.plan.model import IndexKind, IndexPlan, TopicKind, TopicPlan
from caraway.process.secrets.keyring import open_keyring
from caraway.process.settings.index import IndexSettings
from caraway.process.settings.settings import Settings
from caraway.state.blueprints import EMITS
from caraway.state.ownership.members import Owned
from caraway.state.ownership.shards import NOTHING, Division, ShardProgress
from tests.unit.dataplane.index.naive import SCHEMA, index_plan
from tests.unit.state.ownership.members import NO_DATABASE

BROKER = "127.0.0.1:1"
SHARDS = 3
TOPIC = TopicPlan(dataset="Rows", name="rows", kind=TopicKind.VERSIONS, schema=SCHEMA, disorder_us=0)
PLAN = index_plan(IndexKind.VERSIONS, revised=False, asset=b"divided!")
EMITTING = replace(PLAN, dataset="D/rows", asset=b"emitting", emits=TOPIC)
GONE = b"gone-one"
ERASED = [Erasure(columns=("k",), key_id="key", digest=bytes([number])) for number in range(3)]


class Worker:
    """A worker of an index that follows what it is told, and whose state is set by tests."""

    def __init__(self, *partitions: int) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.plans: Sequence[IndexPlan] = ()
        self.reason: str | None = None
        self.alive = True
        self.done: list[Erasure] = []
        self.left: list[Erasure] = []
        self.when_read: Callable[[], object] = lambda: None
        self._partitions = partitions

    def start(self) -> None:
        self.calls.append(("start",))

    def stop(self) -> None:
        self.calls.append(("stop",))

    def set_plans(self, plans: Sequence[IndexPlan]) -> None:
        self.plans = plans

    def is_alive(self) -> bool:
        return self.alive

    def problem(self) -> str | None:
        return self.reason

    def positions(self) -> list[IndexStatus]:
        return [
            IndexStatus(
                dataset=plan.dataset,
                topic=plan.topic,
                asset=plan.asset.hex(),
                following=True,
                offsets=dict.fromkeys(self._partitions, 5),
                lag=len(self._partitions),
                written=2,
                unchanged=0,
                refused=0,
                newest_ingested_us=0,
                emitted=0,
            )
            for plan in self.plans
        ]

    def _follows(self, asset: bytes) -> bool:
        return any(plan.asset == asset for plan in self.plans)

    def advance_clock(self, asset: bytes, time_us: int, goal: Mapping[int, int]) -> "Future[bool]":
        self.calls.append(("clock", time_us, goal))
        done: Future[bool] = Future()
        done.set_result(self._follows(asset))
        return done

    def expire(self, asset: bytes, horizon_us: int, stopping: threading.Event) -> int:
        assert not stopping.is_set()
        return horizon_us if self._follows(asset) else 0

    def erasures(self, *, pending: bool) -> list[tuple[IndexPlan, list[Erasure]]]:
        found = list(self.left if pending else self.done)
        self.when_read()
        return [(plan, found) for plan in self.plans if plan.emits is None]

    def remove_erased(self, plan: IndexPlan, stopping: threading.Event) -> bool:
        assert not stopping.is_set()
        self.calls.append(("remove", plan.asset))
        return self._follows(plan.asset) and not self.left


class Keeper:
    """A keeper of snapshots that has taken one at the second question."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def renew(self, reason: object) -> bool:
        self.asked.append(reason)
        return self.asked.count(reason) > 1


class Emission:
    """The right to write rows, which tests give and take."""

    def __init__(self) -> None:
        self.held = False
        self.postgres = True

    def may_send(self) -> bool:
        return self.held

    def _reach(self) -> None:
        if not self.postgres:
            raise UnavailableError("Postgres doesn't answer")

    claim_or_renew = release = _reach


@dataclass
class Owner:
    """The owner of shards, of which some are open."""

    shards: Mapping[int, IndexDatabase]
    division: Division = NOTHING
    ended: bool = False
    postgres: bool = True

    def open_shards(self) -> Mapping[int, IndexDatabase]:
        return {} if self.ended else self.shards

    def owned(self) -> frozenset[int]:
        return frozenset(self.shards)

    def follow(self, plans: Sequence[IndexPlan]) -> None:
        for shard in self.shards.values():
            shard.worker.set_plans(plans)

    def reconcile(self) -> None:
        pass

    def answer(self, ask: object) -> object:
        raise NotImplementedError

    def end(self) -> None:
        self.ended = True
        if not self.postgres:
            raise UnavailableError("Postgres doesn't answer")


@dataclass
class World:
    """An index with its parts: the database of whole indexes first, then the open shards 0 and 2."""

    index: ServerIndex
    emission: Emission
    stores: Sequence[IndexStore]
    workers: Sequence[Worker]
    keepers: Sequence[Keeper]
    owner: Owner | None = None
    forgotten: list[set[str]] = field(default_factory=list)

    def fill(self, *assets: bytes) -> None:
        """Write an entry and an offset of each of these indexes to all databases."""
        for store in self.stores:
            batch = store.batch()
            for asset in assets:
                batch.put(asset + b"entry", b"value")
                store.put_offset(batch, asset, 0, 1)
            store.write(batch)

    def assets(self) -> list[set[bytes]]:
        return [store.assets() for store in self.stores]


def made(stack: ExitStack, folder: Path, *, divided: bool) -> World:
    folder.mkdir()
    stores, workers, keepers = [], [], []
    for number in range(3 if divided else 1):
        stores.append(IndexStore(folder / str(number), cache_bytes=1 << 20))
        if number:
            stack.callback(stores[number].close)
        workers.append(Worker(number))
        keepers.append(Keeper())
    given: Iterable[Any] = zip(stores, workers, keepers, strict=True)
    databases = [IndexDatabase(store=store, worker=worker, keeper=keeper) for store, worker, keeper in given]
    emission: Any = Emission()
    if not divided:
        rows = IndexReader(stores[0], ErasedKeys(dict))
        index = ServerIndex(databases[0], emission, rows)
        stack.callback(index.close)
        return World(index, emission, stores, workers, keepers)
    shards = IndexShards(
        Settings(data_dir=folder, index=IndexSettings(shards=SHARDS)),
        BROKER,
        NO_DATABASE,
        objects=ObjectFolder(str(folder / "objects")),
        erased=ErasedKeys(dict),
        member="server",
        keyring=open_keyring(folder / "secret.key"),
        count=SHARDS,
    )
    owner, forgotten = Owner({2: databases[2], 0: databases[1]}), list[set[str]]()
    assert isinstance(shards.rows, DividedIndex)
    shards._owner = owner  # type: ignore[assignment]  # the methods that are called
    shards._member = SimpleNamespace(forget_progress=forgotten.append)  # type: ignore[assignment]  # the same
    index = ServerIndex(databases[0], emission, shards.rows, shards)
    stack.callback(index.close)
    stack.callback(index.stop)
    return World(index, emission, stores, workers, keepers, owner, forgotten)


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield made(stack, tmp_path / "whole", divided=False)


@pytest.fixture
def divided(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield made(stack, tmp_path / "divided", divided=True)


def followed(world: World) -> list[list[bytes]]:
    return [[plan.asset for plan in worker.plans] for worker in world.workers]


def test_rows_are_emitted_only_with_the_right(whole: World, divided: World) -> None:
    for world, before, after in (
        (whole, [[PLAN.asset]], [[PLAN.asset, EMITTING.asset]]),
        (divided, [[], [PLAN.asset], [PLAN.asset]], [[EMITTING.asset], [PLAN.asset], [PLAN.asset]]),
    ):
        world.index.follow([PLAN, EMITTING])
        assert followed(world) == before
        world.emission.held = True
        world.index.renew_emission()
        assert followed(world) == after
        # An outage of Postgres takes the right away once it has run out.
        world.emission.held = world.emission.postgres = False
        with pytest.raises(UnavailableError):
            world.index.renew_emission()
        assert followed(world) == before


def test_a_stop_in_an_outage_of_postgres_stops_all_the_same(whole: World, divided: World) -> None:
    for world in (whole, divided):
        world.index.start()
        world.emission.postgres = False
        if world.owner is not None:
            world.owner.postgres = False
        world.index.stop()
        assert world.workers[0].calls == [("start",), ("stop",)]
        assert world.owner is None or world.owner.ended


def test_each_database_forgets_indexes_that_are_gone(whole: World, divided: World) -> None:
    for world in (whole, divided):
        world.fill(PLAN.asset, EMITTING.asset, GONE)
        # Nothing is known of the plans yet.
        world.index.forget({GONE})
        assert world.assets() == [{PLAN.asset, EMITTING.asset}] * len(world.stores)
        # Another index with the same entries may be needed again.
        world.index.follow([PLAN, EMITTING])
        world.fill(GONE)
        world.index.forget({GONE, PLAN.asset, EMITTING.asset})
    assert whole.assets() == [{PLAN.asset, EMITTING.asset}]
    # The database of whole indexes also forgets divided ones, that it had before the index was divided. Shards never
    # had one that emits.
    assert divided.assets() == [{EMITTING.asset}, {PLAN.asset}, {PLAN.asset}]
    assert divided.forgotten == [{GONE.hex()}, {GONE.hex(), EMITTING.asset.hex()}]
    divided.index.forget({GONE})
    assert len(divided.forgotten) == 2


def test_a_purge_ends_once_all_snapshots_are_new(whole: World, divided: World) -> None:
    for world in (whole, divided):
        world.index.follow([PLAN, EMITTING])
        world.fill(EMITTING.asset, PLAN.asset, GONE)
        assert [world.index.purge({GONE}, threading.Event()) for _ in range(2)] == [False, True]
        assert [keeper.asked for keeper in world.keepers] == [[frozenset({GONE})] * 2] * len(world.keepers)
        assert all(GONE not in assets for assets in world.assets())
    assert whole.index.keeper is whole.keepers[0]  # type: ignore[comparison-overlap]  # a stand-in


def emitting(world: World) -> World:
    world.index.follow([PLAN, EMITTING])
    world.emission.held = True
    world.index.renew_emission()
    return world


def test_the_status_is_that_of_all_databases(whole: World, divided: World) -> None:
    found = emitting(whole).index.status()
    assert [index["asset"] for index in listed(found)] == [PLAN.asset.hex(), EMITTING.asset.hex()]
    assert set(found) == {"alive", "bytes_on_disk", "indexes"}

    owned = {2: Owned(member="server#1", token=1), 0: Owned(member="other#7", token=3)}
    assert divided.owner is not None
    divided.owner.division = Division(addresses={"server#1": "a:1"}, owners=owned, progress={})
    divided.fill(PLAN.asset, EMITTING.asset)
    for store in divided.stores:
        store.db.flush()
    found = emitting(divided).index.status()
    assert (found["alive"], found["bytes_on_disk"]) == (True, sum(store.size_bytes() for store in divided.stores))
    assert list(found) == ["alive", "bytes_on_disk", "shards", "indexes"]
    assert found["shards"] == {
        "count": SHARDS,
        "here": [0, 2],
        "owners": {"0": "other#7", "2": "server#1"},
        "servers": {"server#1": "a:1"},
    }
    one, rows = listed(found)
    assert (one["asset"], one["offsets"], one["lag"], one["written"]) == (PLAN.asset.hex(), {"1": 5, "2": 5}, 2, 4)
    assert (rows["asset"], rows["offsets"], rows["lag"]) == (EMITTING.asset.hex(), {"0": 5}, 1)
    for worker in divided.workers:
        worker.alive = False
        assert divided.index.status()["alive"] is False
        worker.alive = True


def listed(status: Mapping[str, object]) -> list[dict[str, object]]:
    indexes = status["indexes"]
    assert isinstance(indexes, list)
    return indexes


def test_work_on_an_index_is_done_in_each_database_that_has_a_part_of_it(whole: World, divided: World) -> None:
    stopping = threading.Event()
    for world, parts in ((whole, 1), (divided, 2)):
        index = emitting(world).index
        for plan, count in ((PLAN, parts), (EMITTING, 1)):
            assert [done.result() for done in index.advance_clock(plan.asset, 7, {0: 1})] == [True] * count
            assert index.expire(plan.asset, 10, stopping) == 10 * count
            assert index.remove_erased(plan, stopping)
        assert [done.result() for done in index.advance_clock(GONE, 7, {})] == [False]
        assert index.expire(GONE, 10, stopping) == 0
    # A shard that removes nothing yet doesn't keep the next one from it.
    divided.workers[2].left = [ERASED[0]]
    for worker in divided.workers:
        worker.calls.clear()
    assert not divided.index.remove_erased(PLAN, stopping)
    assert [worker.calls for worker in divided.workers] == [[], [("remove", PLAN.asset)], [("remove", PLAN.asset)]]


def test_a_key_is_removed_once_no_shard_has_entries_of_it(divided: World) -> None:
    emitting(divided)
    _, one, two = divided.workers
    one.done, one.left = ERASED[:2], [ERASED[2]]
    two.done, two.left = ERASED[:1], ERASED[1:]
    assert sets(divided.index.erasures(pending=True)) == {PLAN.asset: set(ERASED[1:])}
    assert sets(divided.index.erasures(pending=False)) == {PLAN.asset: {ERASED[0]}}


def test_a_key_whose_erasure_arrives_during_a_read_is_not_removed(whole: World, divided: World) -> None:
    for world in (whole, divided):
        emitting(world)
        for worker in world.workers:
            worker.done = list(ERASED[:1])
            worker.when_read = lambda worker=worker: worker.left.append(ERASED[0])  # type: ignore[misc]
        assert sets(world.index.erasures(pending=False)) == {PLAN.asset: set()}


def sets(found: Collection[tuple[IndexPlan, list[Erasure]]]) -> dict[bytes, set[Erasure]]:
    assert all(len(erasures) == len(set(erasures)) for _, erasures in found)
    return {plan.asset: set(erasures) for plan, erasures in found}


def test_the_lag_of_an_undivided_index_is_in_records(whole: World, divided: World) -> None:
    name = f"{EMITTING.asset.hex()}{EMITS}{TOPIC.name}"
    for world in (whole, divided):
        assert world.index.lag(name) == "the index isn't followed yet"
        assert emitting(world).index.lag(name) == "the index is 1 records behind"


def test_the_lag_of_a_divided_index_is_in_shards_of_all_servers(divided: World) -> None:
    index, owner = divided.index, divided.owner
    assert owner is not None
    assert index.lag(PLAN.asset.hex()) == "the index isn't followed yet"
    index.follow([PLAN])
    reached, behind = (ShardProgress(caught_up=caught_up, closing_us=None) for caught_up in (True, False))
    owner.division = replace(NOTHING, progress={1: {PLAN.asset.hex(): reached}, 2: {PLAN.asset.hex(): behind}})
    assert index.lag(PLAN.asset.hex()) == "the index is behind in these shards: 0, 2"
    owner.division = replace(NOTHING, progress={n: {PLAN.asset.hex(): reached} for n in range(SHARDS)})
    assert index.lag(PLAN.asset.hex()) == ""


def test_the_problem_of_a_divided_index_names_the_shards(whole: World, divided: World) -> None:
    whole.workers[0].reason = "it was damaged"
    assert whole.index.problem() == "it was damaged"
    index, owner = divided.index, divided.owner
    assert owner is not None
    # Without plans, nobody waits for the shards.
    assert index.problem() is None
    index.follow([PLAN])
    owned = {number: Owned(member="gone#1" if number == 1 else "server#1", token=1) for number in (0, 1)}
    owner.division = Division(addresses={"server#1": "a:1"}, owners=owned, progress={})
    assert index.problem() == "no server owns these shards: 1, 2"
    for worker, text in zip(divided.workers[::-1], ("shard 2: broken", "shard 0: broken", "broken"), strict=True):
        worker.reason = "broken"
        assert index.problem() == text
