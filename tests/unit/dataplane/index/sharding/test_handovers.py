"""Answers that a server of a divided index must refuse, in each way in which a shard moves between servers."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.records.closing_time import advance_clock_time, stored_clock_time
from caraway.dataplane.index.sharding.messages import Ask, Moved, MovingError
from caraway.dataplane.topics.codec import PUT
from caraway.dataplane.topics.identity import position_id
from caraway.errors import InvalidInputError, UnavailableError
from caraway.graph.plan.model import IndexKind, IndexPlan
from caraway.state.ownership.shards import Division
from tests.unit.dataplane.index.naive import CODEC, SECOND, Sent, index_plan
from tests.unit.dataplane.index.sharding.divided import LASTING, SHARDS, Server, World, WorldMember, partition_of_key
from tests.unit.dataplane.index.sharding.test_divided import BUCKETS

pytestmark = pytest.mark.slow

PLAN = index_plan(IndexKind.VERSIONS, revised=False)
LASTS = LASTING.total_seconds()
# One key of each shard.
KEYS = {partition_of_key(key) % SHARDS: key for key in "abcdef"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.postgres = True
    for server in list(world.servers.values()):
        server.end()


def begin(world: World, *names: str, plan: IndexPlan = PLAN) -> list[Server]:
    for name in names:
        world.servers[name] = Server(world, name, plan)
    return [world.servers[name] for name in names]


def rounds(*servers: Server, pulls: int = 100) -> None:
    """Run rounds of servers; a shard is open after the first one and taken after the second."""
    for _ in range(3):
        for server in servers:
            for shard in server.shards().values():
                shard.pull(pulls)
            server.reconcile()


def put(world: World, key: str, number: int, second: int = 0) -> None:
    world.send(Sent(key, position_id(number, 1), b"", PUT, second * SECOND, (number, None, None)))


def read(server: Server, *keys: str, plan: IndexPlan = PLAN) -> list[object]:
    columns, _ = server.index.read(plan, [CODEC.encode_key([key]) or b"" for key in keys], 10**12, ["n"])
    return columns[0]


def stale(world: World, number: int) -> Ask:
    """Return a question of a client that knows the owner before the last one."""
    token = world.table.owned(str(number)).token - 1
    return Ask(number, token, PLAN.asset, [CODEC.encode_key([KEYS[number]]) or b""], 0, ["n"])


def numbers(server: Server) -> set[int]:
    return set(server.shard_owner.owned())


def test_servers_divide_the_shards_and_ask_each_other(world: World) -> None:
    for number, key in KEYS.items():
        put(world, key, 100 + number)
    one, two = begin(world, "one", "two")
    rounds(one, two)
    assert sorted([*numbers(one), *numbers(two)]) == list(range(SHARDS))
    assert numbers(one) != numbers(two)
    for server in (one, two):
        assert read(server, *KEYS.values()) == [100 + number for number in KEYS]
        with pytest.raises(InvalidInputError, match="has no column"):
            server.index.read(PLAN, [CODEC.encode_key([key]) or b"" for key in KEYS.values()], 0, ["nothing"])
    assert one.index.read(PLAN, [], 0, ["n", "x"]) == ([[], []], [])
    number = min(numbers(one))
    assert isinstance(one.shard_owner.answer(stale(world, number)), Moved)


def test_a_server_that_was_stopped_for_long_answers_nothing(world: World) -> None:
    one, two = begin(world, "one", "two")
    rounds(one, two)
    number = min(numbers(one))
    world.now += 1.1 * LASTS
    rounds(two)
    put(world, KEYS[number], 7)
    rounds(two)
    assert read(two, KEYS[number]) == [7]
    # The first server hasn't noticed yet. A client with an old division asks it, and it refuses; its own reads look
    # again.
    assert isinstance(one.shard_owner.answer(stale(world, number)), Moved)
    assert read(one, KEYS[number]) == [7]


def test_a_server_that_is_stopped_while_it_reads_answers_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = begin(world, "one")
    rounds(one)
    reads = IndexReader.read

    def slowly(reader: IndexReader, *arguments: object) -> object:
        world.now += 1.1 * LASTS
        return reads(reader, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(IndexReader, "read", slowly)
    with pytest.raises(MovingError):
        read(one, KEYS[0])


def test_shards_taken_by_others_are_given_up_before_a_membership_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = begin(world, "one", "two")
    rounds(one, two)
    number = min(numbers(one))
    world.now += 1.1 * LASTS
    rounds(two)

    def goes_away(_: WorldMember) -> Division:
        raise UnavailableError("Postgres went away after the membership was renewed")

    world.postgres = True
    with monkeypatch.context() as patch:
        patch.setattr(WorldMember, "look_at_shards", goes_away)
        with pytest.raises(UnavailableError):
            one.shard_owner.reconcile()
        assert numbers(one) == set()
        with pytest.raises(UnavailableError):
            read(one, KEYS[number])
    rounds(one, two)
    assert read(one, KEYS[number]) == [None]


def test_a_new_owner_has_all_that_was_shown_before(world: World) -> None:
    (one,) = begin(world, "one")
    for key in KEYS.values():
        put(world, key, 1)
    rounds(one)
    (two,) = begin(world, "two")
    two.reconcile()
    (number,) = two.shards()
    # The second server hasn't caught up with the topic's end at its start, so it takes nothing.
    rounds(two, pulls=0)
    assert numbers(two) == set()
    assert numbers(one) == set(range(SHARDS))
    two.shards()[number].pull(100)
    put(world, KEYS[number], 2, second=1)
    rounds(one)
    assert read(two, KEYS[number]) == [2]
    # It has caught up now, but the first server has shown more meanwhile.
    two.reconcile()
    one.reconcile()
    assert numbers(two) == set()
    for server in (one, two):
        with pytest.raises(MovingError, match="catches up"):
            read(server, KEYS[number])
    rounds(two, one)
    assert numbers(two) == {number}
    assert [read(server, KEYS[number]) for server in (one, two)] == [[2], [2]]


def test_an_index_that_is_new_answers_when_it_is_filled(world: World) -> None:
    put(world, KEYS[0], 1)
    (one,) = begin(world, "one")
    rounds(one)
    assert read(one, KEYS[0]) == [1]
    new = replace(PLAN, asset=b"asset--2")
    one.shard_owner.follow([PLAN, new])
    one.reconcile()
    with pytest.raises(MovingError):
        read(one, KEYS[0], plan=new)
    rounds(one)
    assert read(one, KEYS[0], plan=new) == [1]


def test_buckets_close_by_what_other_shards_have(world: World) -> None:
    plan = index_plan(IndexKind.AGGREGATE, revised=False, aggregates=BUCKETS)
    one, two = begin(world, "one", "two", plan=plan)
    put(world, KEYS[0], 1, second=1)
    rounds(one, two)

    def counts() -> list[Sequence[object]]:
        key = [CODEC.encode_key([KEYS[0]]) or b""]
        return [server.index.read(plan, key, 10**12, ["count"])[0][0] for server in (one, two)]

    assert counts() == [[None], [None]]
    put(world, KEYS[1], 2, second=9)
    rounds(one, two)
    rounds(one, two)
    # The last closed bucket is the four seconds before 8, which contain no row.
    assert counts() == [[0], [0]]


def test_concurrent_reads_from_one_server_go_in_one_call(world: World) -> None:
    for number, key in KEYS.items():
        put(world, key, 100 + number)
    one, two = begin(world, "one", "two")
    rounds(one, two)
    keys = [CODEC.encode_key([key]) or b"" for key in KEYS.values()]

    async def read_several() -> list[object]:
        reads = [one.index.read_async(PLAN, keys, 10**12, ["n"]) for _ in range(5)]
        return [columns[0] for columns, _ in await asyncio.gather(*reads)]

    assert asyncio.run(read_several()) == [[100 + number for number in KEYS]] * 5
    assert one.calls == 1
    # A server that can't be reached is called once, since it is still the owner.
    two.connected = False
    with pytest.raises(MovingError, match="doesn't answer"):
        asyncio.run(read_several())
    assert one.calls == 2
    two.connected = True
    # A server with a new address is found by looking at the registry again.
    world.now += 1.1 * LASTS
    two.end()
    begin(world, "two")
    rounds(one, world.servers["two"])
    assert asyncio.run(read_several()) == [[100 + number for number in KEYS]] * 5


def test_windows_that_the_clock_has_closed_stay_closed_when_a_shard_moves(world: World) -> None:
    plan = replace(index_plan(IndexKind.AGGREGATE, revised=False, aggregates=BUCKETS), by_clock=True)
    for number, key in KEYS.items():
        put(world, key, number, second=1)
    one, two = begin(world, "one", "two", plan=plan)
    rounds(one, two)

    def counts(server: Server) -> list[object]:
        keys = [CODEC.encode_key([key]) or b"" for key in KEYS.values()]
        return server.index.read(plan, keys, 4 * SECOND, ["count"])[0][0]

    assert counts(one) == counts(two) == [None] * SHARDS
    for server in (one, two):
        for shard in server.shards().values():
            advance_clock_time(shard.store, plan.asset, 60 * SECOND)
    rounds(one, two)
    assert counts(one) == counts(two) == [1] * SHARDS
    moving = numbers(one)
    one.kill()
    world.now += LASTS + 1
    rounds(two, two)
    # The new owner has no clock time of its own for these shards, until the next heartbeat.
    assert numbers(two) > moving
    assert {stored_clock_time(two.shards()[number].store, plan.asset) for number in moving} == {None}
    assert counts(two) == [1] * SHARDS
