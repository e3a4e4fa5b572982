"""Tests of the assignment of shards to servers."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.plan.model import IndexKind, IndexPlan, TopicKind, TopicPlan
from caraway.sharding.keys import assigned, is_divided
from tests.effort import examples
from tests.unit.index.naive import SCHEMA, index_plan

names = st.sets(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=6)


@settings(max_examples=examples(100))
@given(st.integers(1, 24), names)
def test_every_shard_has_one_owner_and_none_has_more_than_its_share(shards: int, servers: set[str]) -> None:
    owners = assigned(shards, servers)
    assert owners.keys() == set(range(shards))
    assert set(owners.values()) <= servers
    assert max(Counter(owners.values()).values()) <= -(-shards // len(servers))
    # The assignment doesn't depend on the order of the servers.
    assert owners == assigned(shards, sorted(servers))


def test_without_servers_there_are_no_owners() -> None:
    assert assigned(4, set()) == {}


def test_a_server_that_comes_moves_little() -> None:
    for count in range(2, 10):
        servers = [f"host-{n}:/data" for n in range(count)]
        before, after = assigned(64, servers), assigned(64, [*servers, "new:/data"])
        moved = sum(before[shard] != after[shard] for shard in range(64))
        # The bound is the new server's part, and the moves that the others' shares cause.
        assert 64 // (count + 1) <= moved + 1
        assert moved <= 2 * 64 / (count + 1)


EVENTS = index_plan(IndexKind.AGGREGATE, revised=False)
EMITTED = TopicPlan(dataset="D", name="d.rows", kind=TopicKind.VERSIONS, schema=SCHEMA, disorder_us=0)


@pytest.mark.parametrize(
    ("plan", "divided"),
    [
        (index_plan(IndexKind.VERSIONS, revised=True), True),
        (EVENTS, True),
        # A revision may move a row from one group to another, so the rows can't be divided.
        (index_plan(IndexKind.AGGREGATE, revised=True), True),
        # One server writes the rows of this index for jobs, so it isn't divided.
        (replace(EVENTS, emits=EMITTED), False),
    ],
)
def test_all_is_divided_but_what_one_server_writes_for_jobs(plan: IndexPlan, divided: bool) -> None:
    assert is_divided(plan) is divided
