"""Tests of the shares of one caller: of the server, of its time and of its memory."""

import pytest

from caraway.apps.server.access.shares import Shares
from caraway.apps.server.http.budget import SMALL_BYTES, Budget, Hold
from caraway.errors import BusyError


def test_a_caller_has_so_many_requests_under_way() -> None:
    shares = Shares(concurrency=2)
    shares.enter("a")
    shares.enter("a")
    with pytest.raises(BusyError, match="2 requests of this caller"):
        shares.enter("a")
    shares.enter("b")
    shares.leave("a")
    shares.enter("a")


def test_a_caller_makes_so_many_requests_a_second() -> None:
    now = 0.0
    shares = Shares(requests_per_second=2, clock=lambda: now)

    def taken(caller: str) -> int:
        count = 0
        try:
            while True:
                shares.enter(caller)
                shares.leave(caller)
                count += 1
        except BusyError:
            return count

    assert (taken("a"), taken("a"), taken("b")) == (2, 0, 2)
    now = 0.5
    assert (taken("a"), taken("b")) == (1, 1)
    now = 100.0
    assert taken("a") == 2


def test_without_bounds_everything_passes() -> None:
    shares = Shares()
    for _ in range(10_000):
        shares.enter("")


def test_memory_is_bounded_over_all_requests() -> None:
    budget = Budget(100 * SMALL_BYTES)
    first, second, small = Hold(budget, "a"), Hold(budget, "b"), Hold(budget, "c")
    first.grow(50 * SMALL_BYTES)
    with pytest.raises(BusyError, match="try again"):
        second.grow(30 * SMALL_BYTES)
    # A refused request takes nothing, and small requests may use room that large ones must leave.
    second.grow(20 * SMALL_BYTES)
    with pytest.raises(BusyError):
        second.grow(10 * SMALL_BYTES)
    small.grow(SMALL_BYTES)
    for hold in (first, second, small):
        hold.release()
        hold.release()
    assert budget.used == 0


def test_one_caller_leaves_room_for_the_others() -> None:
    budget = Budget(100 * SMALL_BYTES)
    mine, also_mine, other = Hold(budget, "a"), Hold(budget, "a"), Hold(budget, "b")
    other.grow(2 * SMALL_BYTES)
    mine.grow(40 * SMALL_BYTES)
    with pytest.raises(BusyError, match="share of one caller"):
        also_mine.grow(20 * SMALL_BYTES)
    other.grow(20 * SMALL_BYTES)


def test_a_budget_that_does_not_lend_leaves_room_for_callers_who_come_later() -> None:
    budget = Budget(100 * SMALL_BYTES, lends=False)
    mine, also_mine, other = Hold(budget, "a"), Hold(budget, "a"), Hold(budget, "b")
    mine.grow(40 * SMALL_BYTES)
    with pytest.raises(BusyError, match="share of one caller"):
        also_mine.grow(20 * SMALL_BYTES)
    other.grow(20 * SMALL_BYTES)
    mine.release()
    other.release()
    # A request that is alone is never refused.
    also_mine.grow(1_000 * SMALL_BYTES)


def test_a_request_that_is_alone_is_never_refused() -> None:
    hold = Hold(Budget(SMALL_BYTES))
    hold.grow(1_000 * SMALL_BYTES)
    hold.grow(1_000 * SMALL_BYTES)
