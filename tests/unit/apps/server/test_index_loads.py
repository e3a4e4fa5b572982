"""The decision which indexes are loaded by files. The time is counted in looks, so no test waits."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from caraway.apps.server.index_database import IndexDatabase
from caraway.apps.server.index_loads import IDLE_LOOKS, IndexLoads, is_far, is_useful
from caraway.dataplane.index.feeding.worker import IndexStatus
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.index.storage.tables import write_table
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.errors import UnavailableError
from caraway.offline.loads.manifest import TABLES, LoadManifest, LoadTable, is_loadable, write_manifest
from caraway.offline.queries.model import OfflineQuery, OfflineRequest, QueryStatus, folder_of
from caraway.offline.queries.store import LOADS
from caraway.state.model import BranchHeads, JobRecord
from caraway.state.plans import Needed, Planned
from tests.integration.offline.shop import definitions
from tests.unit.apps.server.reports import index_status, job_record
from tests.unit.apps.server.visits import plan_of

LIMIT = 1_000
COMMIT = "c" * 32


@dataclass
class Requests:
    """The requests of loads, as Postgres would have them."""

    found: dict[str, OfflineQuery] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    away: bool = False

    def loads(self) -> list[OfflineQuery]:
        if self.away:
            raise UnavailableError("Postgres is away")
        return list(self.found.values())

    def waiting(self) -> list[OfflineQuery]:
        return [q for q in self.found.values() if not q.status.is_over and q.id not in self.running]

    def add(self, query_id: str, request: OfflineRequest, **more: Any) -> None:
        assert query_id not in self.found
        assert more == {"branch": "", "commit": COMMIT, "account": LOADS, "workflow": "load"}
        self.found[query_id] = OfflineQuery(
            id=query_id,
            branch="",
            commit=COMMIT,
            account=LOADS,
            workflow="",
            request=request,
            cuts=None,
            status=QueryStatus.WAITING,
            cancelled=False,
            rows=None,
            parts=(),
            attempts=0,
            error=None,
            asked_at=datetime.now(UTC),
            ended_at=None,
        )

    def cancel(self, query_id: str) -> None:
        self.set(query_id, cancelled=True)

    def forget(self, query_id: str) -> None:
        del self.found[query_id]

    def set(self, query_id: str, **changes: Any) -> None:
        self.found[query_id] = msgspec.structs.replace(self.found[query_id], **changes)

    @property
    def only(self) -> OfflineQuery:
        (query,) = self.found.values()
        return query


@dataclass
class Worker:
    """A stand-in for the threads that fill a database."""

    store: IndexStore
    statuses: dict[bytes, IndexStatus]
    loaded: list[bytes] = field(default_factory=list)

    def positions(self) -> list[IndexStatus]:
        return list(self.statuses.values())

    def hold(self, asset: bytes) -> bool:
        self.statuses[asset] = replace(self.statuses[asset], held=True, following=False)
        return True

    def release(self, asset: bytes) -> None:
        self.statuses[asset] = replace(self.statuses[asset], held=False)

    def load(self, asset: bytes, tables: list[Path], offsets: dict[int, int]) -> bool:
        self.store.load(asset, tables, offsets)
        self.statuses[asset] = replace(self.statuses[asset], held=False, lag=0, offsets=offsets)
        self.loaded.append(asset)
        return True

    @property
    def held(self) -> set[str]:
        return {status.dataset for status in self.statuses.values() if status.held}


class World:
    """Indexes of a plan, their lags, and the jobs that write their topics."""

    def __init__(self, folder: Path, store: IndexStore) -> None:
        self.plan = plan_of(*definitions(1)[0])
        self.store = store
        self.plans = {plan.dataset: plan for plan in self.plan.indexes if is_loadable(plan)}
        self.worker = Worker(store, {plan.asset: index_status(plan, offsets={0: 0}) for plan in self.plan.indexes})
        self.requests, self.jobs, self.woken = Requests(), list[JobRecord](), 0
        self.objects = ObjectFolder(str(folder / "objects"))
        self.shard: tuple[int, int] | None = None
        self.member = "here"
        self.dataset = "Spending"
        self.start()

    def start(self, limit: int = LIMIT) -> None:
        """Begin anew, as after a restart of the server."""
        graph: Any = None
        commits = {COMMIT: Planned(graph=graph, plan=self.plan)}
        heads = BranchHeads(branches=())
        needed = Needed(heads=heads, commits=commits, jobs=self.plan.jobs, indexes=self.plan.indexes)
        self.loads = IndexLoads(
            lambda: [IndexDatabase(store=self.store, worker=self.worker, keeper=None, shard=self.shard)],  # type: ignore[arg-type]
            self.requests,  # type: ignore[arg-type]
            self.objects,
            limit=limit,
            member=self.member,
            needed=lambda: needed,
            jobs=lambda: self.jobs,
            wake=self.wake,
        )

    def wake(self) -> None:
        self.woken += 1

    def lag(self, lag: int | None, offset: int = 0, **more: Any) -> None:
        asset = self.plans[self.dataset].asset
        self.worker.statuses[asset] = replace(self.worker.statuses[asset], lag=lag, offsets={0: offset}, **more)

    def job(self, **progress: Any) -> None:
        """Set the progress of the job that writes the index's topic."""
        topic = self.plans[self.dataset].topic
        job = next(job for job in self.plan.jobs if job.output.name == topic)
        self.jobs = [job_record(job, progress=progress)]

    def ready(self, **changes: Any) -> None:
        """Write the tables of the request, as its process does."""
        query, asset = self.requests.only, self.plans[self.dataset].asset
        path = self.store.path.with_name("made.sst")
        write_table(path, [(asset + b"\0\1k" + b"\x10", b"v")])
        digest = self.objects.put(path, f"{folder_of(query.id)}/{TABLES}/0")
        table = LoadTable(name=f"{TABLES}/0", digest=digest, bytes=path.stat().st_size, records=1)
        manifest = LoadManifest(format=self.store.format.decode(), offsets={0: 5_000}, tables=[table])
        write_manifest(self.objects, query.id, msgspec.structs.replace(manifest, **changes))
        self.requests.set(query.id, status=QueryStatus.SUCCEEDED, rows=5_000, cuts={query_topic(self): {0: 5_000}})


def query_topic(world: World) -> str:
    return world.plans[world.dataset].topic


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        store = stack.enter_context(IndexStore(tmp_path / "index", cache_bytes=1 << 20))
        yield World(tmp_path, store)


def test_an_index_that_lacks_little_is_left_alone(world: World) -> None:
    for lag, offset in ((0, 0), (LIMIT, 0), (None, 0), (LIMIT + 1, LIMIT + 2)):
        world.lag(lag, offset)
        world.loads.look()
    assert not world.requests.found
    assert not world.worker.held


def test_half_of_the_topic_counts_in_records() -> None:
    status = index_status(offsets={0: 10, 1: 10}, lag=2_000, records_per_message=100.0)
    assert is_far(status, LIMIT, 0)
    assert not is_far(status, 2_000, 0)
    assert is_far(status, 2_000, 1)
    assert not is_far(replace(status, lag=1_999), LIMIT, 0)


def test_an_index_that_lacks_a_history_is_loaded(world: World) -> None:
    world.lag(LIMIT + 1, offset=10)
    world.loads.look()
    query = world.requests.only
    assert query.request.load is not None
    assert (query.request.load.asset, query.request.load.shards) == (world.plans[world.dataset].asset.hex(), 1)
    assert world.worker.held == {world.dataset}
    assert world.woken == 1
    world.requests.running.add(query.id)
    world.requests.set(query.id, status=QueryStatus.RUNNING)
    world.loads.look()
    assert world.requests.only.id == query.id
    world.ready()
    world.loads.look()
    assert world.worker.loaded == [world.plans[world.dataset].asset]
    assert world.store.offsets(world.plans[world.dataset].asset) == {0: 5_000}
    assert not world.requests.found
    assert not world.objects.stored()
    assert not list(world.store.path.parent.glob("*.loading"))
    # A process loads an index at most once.
    world.lag(10**9)
    world.loads.look()
    assert not world.requests.found


def test_a_shard_asks_for_its_partitions(world: World) -> None:
    world.shard = (1, 3)
    world.lag(LIMIT + 1)
    world.loads.look()
    query = world.requests.only
    assert "-1-of-3-" in query.id
    assert query.request.load is not None
    assert [query.request.load.holds(p) for p in range(6)] == [False, True, False, False, True, False]


@pytest.fixture
def shared(world: World, tmp_path: Path) -> Iterator[tuple[World, World]]:
    """Yield the servers of a shard that moves: the one that is to have it lacks most; its owner lacks nothing."""
    with IndexStore(tmp_path / "owner" / "index", cache_bytes=1 << 20) as store:
        owner = World(tmp_path / "owner", store)
        owner.requests, owner.objects, owner.member = world.requests, world.objects, "there"
        for each in (world, owner):
            each.shard = (1, 3)
            each.start()
        owner.lag(3, offset=10 * LIMIT)
        world.lag(9 * LIMIT, offset=LIMIT)
        yield world, owner


def test_the_owner_of_a_shard_goes_on_while_another_server_loads_it(shared: tuple[World, World]) -> None:
    joining, owner = shared
    joining.loads.look()
    query = joining.requests.only
    cuts = {query_topic(joining): {0: 10 * LIMIT}}
    for changes in ({}, {"status": QueryStatus.RUNNING, "rows": 10 * LIMIT, "cuts": cuts}):
        joining.requests.set(query.id, **changes)
        owner.loads.look()
        assert not owner.worker.held, "the owner answers reads, and follows its topic"
        assert not joining.requests.only.cancelled
    joining.ready()
    owner.loads.look()
    joining.loads.look()
    assert joining.worker.loaded
    assert not owner.worker.loaded


def test_a_server_that_has_loaded_a_shard_cancels_no_load_of_another_one(shared: tuple[World, World]) -> None:
    joining, owner = shared
    owner.lag(9 * LIMIT, offset=LIMIT)
    owner.loads.look()
    owner.ready()
    owner.loads.look()
    assert owner.worker.loaded
    joining.loads.look()
    owner.lag(3, offset=10 * LIMIT)
    owner.loads.look()
    assert not joining.requests.only.cancelled


def test_a_cancelled_request_is_of_no_use(world: World) -> None:
    world.lag(LIMIT + 1)
    world.loads.look()
    asked = world.requests.only
    assert is_useful(asked, index_status(), LIMIT)
    assert not is_useful(msgspec.structs.replace(asked, cancelled=True), index_status(), LIMIT)


def test_without_loads_nothing_is_held(world: World) -> None:
    world.start(limit=0)
    world.lag(10**9)
    world.loads.look()
    assert not world.requests.found
    assert not world.worker.held


def test_the_load_waits_until_the_job_has_read_its_history(world: World) -> None:
    world.lag(10)
    world.job(phase="backfill", lag_records=LIMIT)
    world.loads.look()
    assert world.worker.held == {world.dataset}
    for lag in (600, 300, 0):
        world.job(phase="backfill", lag_records=lag)
        world.loads.look()
    assert not world.requests.found
    world.job(phase="live", lag_records=0)
    world.loads.look()
    assert world.requests.only.status is QueryStatus.WAITING


def test_a_job_that_does_not_go_on_is_not_waited_for(world: World) -> None:
    world.lag(LIMIT)
    world.job(phase="archive", lag_records=77)
    for _ in range(IDLE_LOOKS):
        world.loads.look()
    assert not world.requests.found
    world.loads.look()
    assert world.requests.only.id


@pytest.mark.parametrize("status", [QueryStatus.FAILED, QueryStatus.CANCELLED])
def test_an_index_whose_load_failed_reads_its_topic(world: World, status: QueryStatus) -> None:
    world.lag(LIMIT + 1)
    world.loads.look()
    world.requests.set(world.requests.only.id, status=status, error="Java is missing")
    for _ in range(3):
        world.loads.look()
        assert not world.requests.found
        assert not world.worker.held


def test_an_index_whose_load_nobody_builds_reads_its_topic(world: World) -> None:
    world.lag(LIMIT + 1)
    for _ in range(IDLE_LOOKS):
        world.loads.look()
        assert world.worker.held
    world.loads.look()
    assert not world.worker.held
    assert world.requests.only.cancelled
    world.requests.set(world.requests.only.id, status=QueryStatus.CANCELLED)
    world.loads.look()
    assert not world.requests.found


def test_a_load_waits_for_one_that_is_under_way(world: World) -> None:
    for plan in world.plans.values():
        world.worker.statuses[plan.asset] = replace(world.worker.statuses[plan.asset], lag=LIMIT + 1)
    world.loads.look()
    assert len(world.requests.found) == len(world.plans) > 1
    first = next(iter(world.requests.found))
    world.requests.running.add(first)
    world.requests.set(first, status=QueryStatus.RUNNING)
    for _ in range(2 * IDLE_LOOKS):
        world.loads.look()
    assert world.worker.held == set(world.plans)


def test_tables_that_can_not_be_taken_are_given_up(world: World) -> None:
    world.lag(LIMIT + 1)
    world.loads.look()
    world.ready(format="of another release")
    for _ in range(IDLE_LOOKS):
        world.loads.look()
    assert not world.worker.held
    assert not world.worker.loaded
    assert not world.requests.found


def test_no_index_is_held_for_long_while_postgres_is_away(world: World) -> None:
    world.lag(LIMIT + 1)
    world.loads.look()
    world.requests.away = True
    for _ in range(IDLE_LOOKS):
        assert world.worker.held
        with pytest.raises(UnavailableError):
            world.loads.look()
    assert not world.worker.held


def test_a_restart_finds_the_load_again(world: World) -> None:
    world.lag(LIMIT + 1)
    world.loads.look()
    world.ready()
    world.start()
    world.lag(None, held=False)
    world.worker.statuses[world.plans[world.dataset].asset] = replace(
        world.worker.statuses[world.plans[world.dataset].asset], offsets={}
    )
    # Before it is known where the index is, nothing is decided.
    world.loads.look()
    assert world.requests.found
    world.lag(LIMIT + 1, held=False)
    world.loads.look()
    assert world.worker.loaded


def test_a_load_that_the_index_has_overtaken_is_removed(world: World) -> None:
    world.lag(LIMIT + 1)
    world.loads.look()
    world.ready()
    world.start()
    world.lag(3, offset=4_900, held=False)
    world.loads.look()
    assert not world.requests.found
    assert not world.worker.loaded


def test_a_request_of_an_index_that_is_gone_is_removed(world: World) -> None:
    world.lag(LIMIT + 1)
    world.loads.look()
    del world.worker.statuses[world.plans[world.dataset].asset]
    world.loads.look()
    assert world.requests.only.cancelled
    world.requests.set(world.requests.only.id, status=QueryStatus.CANCELLED)
    world.loads.look()
    assert not world.requests.found


def test_the_tables_of_an_index_that_is_gone_are_removed(world: World) -> None:
    world.shard = (0, 2)
    world.lag(LIMIT + 1)
    world.loads.look()
    world.ready()
    load = world.requests.only.request.load
    assert load is not None
    gone = msgspec.structs.replace(load, asset="00" * 8)
    world.requests.set(world.requests.only.id, request=msgspec.structs.replace(world.requests.only.request, load=gone))
    world.requests.found = {"load-gone": msgspec.structs.replace(world.requests.only, id="load-gone")}
    world.loads.look()
    assert "load-gone" not in world.requests.found


def test_what_an_earlier_process_asked_is_useful_while_it_is_ahead(world: World) -> None:
    world.lag(LIMIT + 1)
    world.loads.look()
    status = index_status(offsets={0: 10, 1: 50}, topic="t")
    asked = msgspec.structs.replace(world.requests.only, cuts={"t": {0: 100, 1: 100}}, rows=20_000)
    assert is_useful(asked, status, 13_999)
    assert not is_useful(asked, status, 14_000)
    assert is_useful(world.requests.only, status, LIMIT)
    assert not is_useful(msgspec.structs.replace(asked, status=QueryStatus.FAILED), status, 0)
