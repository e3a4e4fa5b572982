"""Tests of a lease as its holder sees it: how long it lasts, how it is lost, and how it is claimed again."""

from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from typing_extensions import override

from caraway.errors import UnavailableError
from caraway.state.ownership.leases import HeldLease, Lease
from tests.unit.state.ownership.members import NO_DATABASE

LASTING = timedelta(seconds=10)


@dataclass
class Row:
    """The row of a lease, and the calls that reached it."""

    token: int = 0
    free: bool = True
    away: bool = False
    calls: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLease(Lease):
    row: Row

    @override
    def claim(self, lasting: timedelta, *, succeeds: bool) -> int | None:
        self._call("claim")
        if not (self.row.free or succeeds):
            return None
        self.row.token, self.row.free = self.row.token + 1, False
        return self.row.token

    @override
    def renew(self, token: int, lasting: timedelta) -> bool:
        self._call("renew")
        return token == self.row.token

    @override
    def release(self, token: int) -> None:
        self._call("release")
        self.row.free = self.row.free or token == self.row.token

    def _call(self, name: str) -> None:
        if self.row.away:
            raise UnavailableError("away")
        self.row.calls.append(name)


def held(row: Row, now: list[float], renew_s: float = 0.0) -> HeldLease:
    lease = MemoryLease(engine=NO_DATABASE, name="right", owner="one", row=row)
    return HeldLease(lease, LASTING, renew_s=renew_s, clock=lambda: now[0])


def test_it_lasts_from_the_time_before_each_renewal_on() -> None:
    row, now = Row(), [100.0]
    lease = held(row, now)
    assert (lease.token, lease.until) == (None, float("-inf"))
    assert lease.keep(succeeds=False)
    assert (lease.token, lease.until) == (1, 110.0)
    now[0] = 105.0
    row.away = True
    with pytest.raises(UnavailableError):
        lease.keep(succeeds=False)
    # An outage neither ends the lease nor extends it.
    assert (lease.token, lease.until) == (1, 110.0)
    row.away = False
    now[0] = 120.0
    assert lease.keep(succeeds=False)
    assert lease.until == 130.0


def test_renewals_are_as_far_apart_as_asked_for() -> None:
    row, now = Row(), [0.0]
    lease = held(row, now, renew_s=2.5)
    for now[0] in (0.0, 1.0, 2.0, 2.5, 4.0, 5.0):
        assert lease.keep(succeeds=False)
    assert row.calls == ["claim", "renew", "renew"]
    assert lease.until == 15.0


def test_a_lost_lease_is_claimed_by_the_next_call() -> None:
    row, now = Row(), [0.0]
    lease = held(row, now)
    assert lease.keep(succeeds=False)
    row.token = 7
    assert not lease.keep(succeeds=True)
    assert (lease.token, lease.until) == (None, float("-inf"))
    assert not lease.keep(succeeds=False)
    assert lease.keep(succeeds=True)
    assert lease.token == 8


def test_what_is_released_is_held_no_more_even_if_the_release_fails() -> None:
    row, now = Row(), [0.0]
    lease = held(row, now)
    lease.release()
    assert lease.keep(succeeds=False)
    row.away = True
    with pytest.raises(UnavailableError):
        lease.release()
    assert (lease.token, lease.until) == (None, float("-inf"))
    assert row.calls == ["claim"]
