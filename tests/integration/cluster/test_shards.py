"""Members, owners and tokens of a divided index, in Postgres."""

from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from caraway.state.ownership.members import Owned
from caraway.state.ownership.shards import ShardMember, ShardProgress, shard_member

# LONG doesn't expire within a test, even on a busy machine; NONE expires at once.
LONG, NONE = timedelta(minutes=10), timedelta(0)
CAUGHT_UP = ShardProgress(caught_up=True, closing_us=None)


@pytest.fixture
def one(engine: sa.Engine) -> ShardMember:
    return shard_member(engine, "one", 4)


def join(member: ShardMember, address: str, lasting: timedelta) -> int | None:
    member.announce(address)
    return member.lease.claim(lasting, succeeds=True)


def test_owners_take_from_each_other_by_token(one: ShardMember) -> None:
    two = replace(one, node="two")
    assert (join(one, "one:1", LONG), join(two, "two:1", LONG)) == (1, 1)
    assert one.look_at_shards().addresses == {"one#1": "one:1", "two#1": "two:1"}

    # Two members have read the same token, and one of them takes the shard; the other can take it with the new token,
    # though its owner is alive.
    assert one.with_token(1).take_over("0", 0) == 1
    assert two.with_token(1).take_over("0", 0) is None
    assert two.with_token(1).take_over("0", 1) == 2
    assert one.with_token(1).take_over("0", 1) is None
    assert two.look_at_shards().owners == {0: Owned(member="two#1", token=2)}

    # The report of an earlier owner is ignored.
    two.report(0, 2, {"a": CAUGHT_UP, "b": ShardProgress(caught_up=False, closing_us=7)})
    one.report(0, 1, {"a": ShardProgress(caught_up=False, closing_us=None)})
    two.report(0, 2, {})
    assert one.look_at_shards().progress == {0: {"a": CAUGHT_UP, "b": ShardProgress(caught_up=False, closing_us=7)}}
    two.report(0, 2, {"b": ShardProgress(caught_up=True, closing_us=3)})
    one.forget_progress({"a"})
    assert one.look_at_shards().progress == {0: {"b": ShardProgress(caught_up=True, closing_us=3)}}

    # A server with another number of shards has a division of its own.
    other = shard_member(one.engine, "one", 2)
    assert join(other, "one:2", LONG) == 1
    assert (other.look_at_shards().owners, other.look_at_shards().progress) == ({}, {})
    assert one.look_at_shards().owners == {0: Owned(member="two#1", token=2)}


def test_a_member_that_is_gone_takes_nothing(one: ShardMember) -> None:
    assert join(one, "one:1", NONE) == 1
    assert one.look_at_shards().addresses == {}
    assert one.with_token(1).take_over("0", 0) is None
    assert one.lease.renew(1, LONG)
    assert one.with_token(1).take_over("0", 0) == 1

    # The server is started again elsewhere: it is a new member, and its earlier process isn't one any more.
    assert join(one, "one:2", LONG) == 2
    assert not one.lease.renew(1, LONG)
    assert one.with_token(1).take_over("1", 0) is None
    assert one.look_at_shards().addresses == {"one#2": "one:2"}
    assert one.look_at_shards().owners == {0: Owned(member="one#1", token=1)}
    one.lease.release(2)
    assert one.look_at_shards().addresses == {}
