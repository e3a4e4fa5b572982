"""An index that is divided among servers against a dictionary, through hand-overs, kills, pauses, outages and cuts.

Servers come and go, follow the topic and look at the registry at any speed. Every read at every server equals that of a
dictionary of the records up to the answering owner's offset, or is refused with a request to try again. A server whose
membership has expired doesn't answer, and no new owner shows less than was shown before. Once nothing happens any more,
every server answers everything, as an undivided index does.
"""

import logging
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.records.locations import END_SUFFIX, PUT_SUFFIX
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import DELETE, PUT, RETRACT
from caraway.dataplane.topics.identity import ID_BYTES, position_id
from caraway.dtypes.types import FLOAT
from caraway.errors import UnavailableError
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.plan.model import IndexKind, IndexPlan
from caraway.graph.windows import HoppingWindow
from tests.effort import examples
from tests.unit.dataplane.index.naive import ALL_AGGREGATES, CODEC, SECOND, SMALL, NaiveIndex, Sent, index_plan
from tests.unit.dataplane.index.sharding.divided import LASTING, PARTITIONS, SHARDS, Server, World, partition_of_key
from tests.unit.dataplane.index.test_index import COLUMNS, ROW_COLUMNS, rows, same, times

pytestmark = pytest.mark.slow

# Several keys in each partition.
KEYS = ("a", "b", "c", "d", "e", "f")
SERVERS = ("one", "two", "three")
# Rounds that are enough for every server to learn what others have reported, and to take its own shards.
ROUNDS = 4

BUCKETS = (
    AggregateSpec(
        function=AggregateFunction.COUNT,
        into="count",
        of=None,
        window=HoppingWindow(length_us=4 * SECOND, stride_us=2 * SECOND),
        default=None,
        dtype=FLOAT,
    ),
    AggregateSpec(
        function=AggregateFunction.SUM,
        into="sum",
        of="n",
        window=HoppingWindow(length_us=2 * SECOND, stride_us=2 * SECOND, lookback_us=SECOND),
        default=None,
        dtype=FLOAT,
    ),
)

BUCKET_COLUMNS = ["k", "count", "sum", "t"]

servers = st.sampled_from(SERVERS)
keys = st.sampled_from(KEYS)


class DividedMachine(RuleBasedStateMachine):
    """A topic, servers that share its index, and all events that may happen to them."""

    plan: IndexPlan
    columns: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.world = World(Path(self.temporary.name))
        # The last record that was sent of every id, which is the one to be revised.
        self.newest: list[Sent] = []
        # The delete that ends a row, by the row's number.
        self.ends: dict[int, Sent] = {}

    def teardown(self) -> None:
        if self.world.servers:
            self.settle("one", [5 * SECOND])
        for server in list(self.world.servers.values()):
            server.kill()
        self.temporary.cleanup()

    @initialize()
    def begin(self) -> None:
        for name in SERVERS[:2]:
            self.start(name)
        self.calm()

    @rule(name=servers)
    def start(self, name: str) -> None:
        if name not in self.world.servers:
            self.world.servers[name] = Server(self.world, name, self.plan)

    @rule(name=servers)
    def kill(self, name: str) -> None:
        if name in self.world.servers:
            self.world.servers[name].kill()

    @rule(name=servers)
    def end(self, name: str) -> None:
        if name in self.world.servers:
            self.world.servers[name].end()

    @rule(key=keys, many=st.lists(st.tuples(times, rows), min_size=1, max_size=3))
    def put(self, key: str, many: list[tuple[int, tuple[Any, ...]]]) -> None:
        for time, row in many:
            self.send(Sent(key, position_id(len(self.newest) + 1, 1), b"", PUT, time, row))

    @precondition(lambda self: self.plan.kind is IndexKind.VERSIONS)
    @rule(key=keys, time=times, row=rows)
    def delete(self, key: str, time: int, row: tuple[Any, ...]) -> None:
        self.send(Sent(key, position_id(len(self.newest) + 1, 1), b"", DELETE, time, row))

    def send(self, sent: Sent) -> None:
        self.newest.append(sent)
        self.world.send(sent)

    @precondition(lambda self: self.plan.revised and self.newest)
    @rule(data=st.data(), key=keys, time=times, row=rows)
    def revise(self, data: st.DataObject, key: str, time: int, row: tuple[Any, ...]) -> None:
        """Revise a row as writers of topics do: a retraction under the old key and time precedes the new put."""
        place = data.draw(st.integers(0, len(self.newest) - 1))
        old, rev = self.newest[place], self.revision()
        self.world.send(Sent(old.key, old.record_id, rev, RETRACT, old.time, old.row))
        self.newest[place] = Sent(key, old.record_id, rev, PUT, time, row)
        self.world.send(self.newest[place])
        if (end := self.ends.get(place)) is not None:
            self.world.send(replace(end, rev=rev, op=RETRACT))
            self.end_at(place, max(end.time, time), rev)

    @precondition(lambda self: self.plan.revised and self.newest)
    @rule(data=st.data(), key=keys, time=times, row=rows)
    def deny(self, data: st.DataObject, key: str, time: int, row: tuple[Any, ...]) -> None:
        """Send a retraction of a row's present revision, with any key or content, as jobs do after a restart."""
        place = data.draw(st.integers(0, len(self.newest) - 1))
        for said in (self.newest[place], self.ends.get(place)):
            if said is not None and said.rev:
                self.world.send(Sent(key, said.record_id, said.rev, RETRACT, time, row))

    def revision(self) -> bytes:
        return (sum(map(len, self.world.topic)) + 1).to_bytes(4)

    def end_at(self, place: int, time: int, rev: bytes) -> None:
        begin = self.newest[place]
        self.ends[place] = Sent(begin.key, begin.record_id[:-1] + END_SUFFIX, rev, DELETE, time, begin.row)
        self.world.send(self.ends[place])

    @rule(name=servers, count=st.integers(0, 4))
    def go_on(self, name: str, count: int) -> None:
        """Run one round of a server, which is started if it isn't running."""
        self.start(name)
        for shard in self.shards(name).values():
            shard.pull(count)
        self.world.servers[name].reconcile()

    @rule(times_=st.integers(1, 3), count=st.integers(0, 4))
    def all_go_on(self, times_: int, count: int) -> None:
        """Run some rounds of all servers that are running, the most frequent event."""
        for _ in range(times_):
            for server in list(self.world.servers.values()):
                for shard in server.shards().values():
                    shard.pull(count)
                server.reconcile()
            self.world.now += 0.02 * LASTING.total_seconds()

    @rule(name=servers, shard=st.integers(0, SHARDS - 1))
    def snapshot(self, name: str, shard: int) -> None:
        if shard in self.shards(name):
            found = self.shards(name)[shard]
            found.snapshots.take(found.store)

    @rule(share=st.sampled_from([0.1, 0.3, 0.6, 1.1]))
    def wait(self, share: float) -> None:
        """Advance the clock while no server does anything."""
        self.world.now += share * LASTING.total_seconds()

    @rule()
    def postgres_goes_or_comes(self) -> None:
        self.world.postgres = not self.world.postgres

    @rule(name=servers)
    def cut(self, name: str) -> None:
        """Cut a server off from the others, or connect it again."""
        if name in self.world.servers:
            self.world.servers[name].connected = not self.world.servers[name].connected

    @rule(ats=st.lists(times, min_size=1, max_size=2))
    def read(self, ats: list[int]) -> None:
        self.compare([*ats, 100 * SECOND])

    @rule(name=servers, ats=st.lists(times, min_size=1, max_size=3))
    def settle(self, name: str, ats: list[int]) -> None:
        """End all disturbances, then check that every server answers everything as one undivided index does."""
        self.start(name)
        self.calm()
        wanted = self.undivided([*ats, 100 * SECOND])
        asked = [(key, at) for key in KEYS for at in [*ats, 100 * SECOND]]
        for server in self.world.servers.values():
            encoded = [CODEC.encode_key([key]) or b"" for key, _ in asked]
            columns, found = server.index.read(self.plan, encoded, [at for _, at in asked], self.columns)
            assert same([list(column) for column in columns], wanted[0])
            assert found == wanted[1]

    def calm(self) -> None:
        self.world.postgres = True
        for server in self.world.servers.values():
            server.connected = True
        # The membership of servers that are gone has expired by then.
        self.world.now += 1.1 * LASTING.total_seconds()
        for _ in range(ROUNDS):
            for server in self.world.servers.values():
                for shard in server.shards().values():
                    shard.pull(1000)
                server.reconcile()
            self.world.now += 0.1 * LASTING.total_seconds()
        for server in self.world.servers.values():
            server.shard_owner.look()

    def undivided(self, ats: list[int]) -> tuple[list[list[object]], list[bool]]:
        """Return rows read from one index that has all partitions."""
        path = self.world.folder / "undivided"
        path.mkdir()
        with tempfile.TemporaryDirectory(dir=path) as folder, IndexStore(Path(folder) / "db", geometry=SMALL) as store:
            for partition in range(PARTITIONS):
                messages = [
                    (*sent.message(0)[:2], partition, offset) for offset, sent in enumerate(self.world.topic[partition])
                ]
                if messages:
                    IndexWriter(store).apply(self.plan, messages)
            encoded = [CODEC.encode_key([key]) or b"" for key in KEYS for _ in ats]
            read = IndexReader(store).read(self.plan, encoded, ats * len(KEYS), self.columns)
        path.rmdir()
        return read

    def shards(self, name: str) -> dict[int, Any]:
        server = self.world.servers.get(name)
        return {} if server is None else dict(server.shards())

    def compare(self, ats: list[int]) -> None:
        for server in self.world.servers.values():
            for key in KEYS:
                encoded = [CODEC.encode_key([key]) or b""] * len(ats)
                try:
                    columns, found = server.index.read(self.plan, encoded, ats, self.columns)
                except UnavailableError as error:
                    if error.code not in {"index_moving", "unavailable"}:
                        raise
                    continue
                if self.plan.aggregates == BUCKETS:
                    # The max event time closes buckets, and every server knows it only after all disturbances have
                    # ended.
                    continue
                partition = partition_of_key(key)
                naive = NaiveIndex(self.plan)
                for sent in self.world.topic[partition][: self.world.answered_at[partition]]:
                    naive.apply(sent)
                for place, at in enumerate(ats):
                    expected, there = naive.read(key, at, self.columns)
                    assert there == found[place]
                    assert same([column[place] for column in columns], expected), (key, at)


class Versions(DividedMachine):
    plan = index_plan(IndexKind.VERSIONS, revised=False)
    columns = ROW_COLUMNS


class RevisedVersions(DividedMachine):
    plan = index_plan(IndexKind.VERSIONS, revised=True)
    columns = ROW_COLUMNS


class RevisedAggregates(DividedMachine):
    """The same for rows of a table, which end where the next row of their key begins."""

    plan = index_plan(IndexKind.AGGREGATE, revised=True, aggregates=ALL_AGGREGATES)
    columns = COLUMNS

    @rule(key=keys, time=times, row=rows)
    def put_version(self, key: str, time: int, row: tuple[Any, ...]) -> None:
        self.send(Sent(key, position_id(len(self.newest) + 1, 1) + PUT_SUFFIX, b"", PUT, time, row))

    @precondition(lambda self: self.versions())
    @rule(data=st.data(), lifetime=st.integers(0, 12 * SECOND))
    def end_version(self, data: st.DataObject, lifetime: int) -> None:
        place = data.draw(st.sampled_from(self.versions()))
        self.end_at(place, self.newest[place].time + lifetime, self.revision())

    def versions(self) -> list[int]:
        return [place for place, sent in enumerate(self.newest) if len(sent.record_id) > ID_BYTES]


class Buckets(DividedMachine):
    plan = index_plan(IndexKind.AGGREGATE, revised=False, aggregates=BUCKETS)
    columns = BUCKET_COLUMNS


class RevisedBuckets(DividedMachine):
    plan = index_plan(IndexKind.AGGREGATE, revised=True, aggregates=BUCKETS)
    columns = BUCKET_COLUMNS


@pytest.mark.parametrize("machine", [Versions, RevisedVersions, RevisedAggregates, Buckets, RevisedBuckets])
def test_no_read_of_a_divided_index_is_wrong(machine: type[DividedMachine], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(15),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_keys_of_this_test_are_in_all_partitions() -> None:
    assert {partition_of_key(key) for key in KEYS} == set(range(PARTITIONS))
