"""Members, owners and tokens of a divided index, in Postgres."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from caraway.errors import UnavailableError
from caraway.state import IndexOwners, connect, migrate
from caraway.state.index_owners import Owned, ShardProgress

# LONG doesn't expire within a test, even on a busy machine; NONE expires at once.
LONG, NONE = timedelta(minutes=10), timedelta(0)
CAUGHT_UP = ShardProgress(caught_up=True, max_event_time_us=None)


@pytest.fixture
def one(postgres: str) -> Iterator[IndexOwners]:
    engine = connect(postgres)
    yield IndexOwners(engine=engine, server="one", shards=4)
    engine.dispose()


def test_owners_take_from_each_other_by_token(postgres: str, one: IndexOwners) -> None:
    two = replace(one, server="two")
    with pytest.raises(UnavailableError, match="not set up the tables yet"):
        one.look()
    migrate(postgres)
    assert (one.join("one:1", LONG), two.join("two:1", LONG)) == (1, 1)
    assert one.look().addresses == {"one#1": "one:1", "two#1": "two:1"}

    # Two members have read the same token, and one of them takes the shard; the other can take it with the new token,
    # though its owner is alive.
    assert one.take(0, 0, 1) == 1
    assert two.take(0, 0, 1) is None
    assert two.take(0, 1, 1) == 2
    assert one.take(0, 1, 1) is None
    assert two.look().owners == {0: Owned(member="two#1", token=2)}

    # The report of an earlier owner is ignored.
    two.report(0, 2, {"a": CAUGHT_UP, "b": ShardProgress(caught_up=False, max_event_time_us=7)})
    one.report(0, 1, {"a": ShardProgress(caught_up=False, max_event_time_us=None)})
    two.report(0, 2, {})
    assert one.look().progress == {0: {"a": CAUGHT_UP, "b": ShardProgress(caught_up=False, max_event_time_us=7)}}
    two.report(0, 2, {"b": ShardProgress(caught_up=True, max_event_time_us=3)})
    one.forget({"a"})
    assert one.look().progress == {0: {"b": ShardProgress(caught_up=True, max_event_time_us=3)}}

    # A server with another number of shards has a division of its own.
    other = replace(one, shards=2)
    assert other.join("one:2", LONG) == 1
    assert (other.look().owners, other.look().progress) == ({}, {})
    assert one.look().owners == {0: Owned(member="two#1", token=2)}


def test_a_member_that_is_gone_takes_nothing(postgres: str, one: IndexOwners) -> None:
    migrate(postgres)
    assert one.join("one:1", NONE) == 1
    assert one.look().addresses == {}
    assert one.take(0, 0, 1) is None
    assert one.renew(1, LONG)
    assert one.take(0, 0, 1) == 1

    # The server is started again elsewhere: it is a new member, and its earlier process isn't one any more.
    assert one.join("one:2", LONG) == 2
    assert not one.renew(1, LONG)
    assert one.take(1, 0, 1) is None
    assert one.look().addresses == {"one#2": "one:2"}
    assert one.look().owners == {0: Owned(member="one#1", token=1)}
    one.leave(2)
    assert one.look().addresses == {}
