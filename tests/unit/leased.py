"""A process that may be killed, and the lease by which it works: what the worlds of sources and sinks have alike."""

from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from caraway.state.ownership.leases import HeldLease, Lease


class KilledError(BaseException):
    """The end of the process, which nothing catches."""


@dataclass(kw_only=True)
class Leased:
    """The lease, the clock, and the end of a process.

    Attributes:
        fuse: How many steps the process has before it is killed in the middle of one.
        taken_over: True if another server holds the lease.
    """

    owner_token: int = 0
    taken_over: bool = False
    fuse: int = 10**9
    now: float = 0.0

    def burn(self) -> None:
        if self.fuse <= 0:
            raise KilledError
        self.fuse -= 1

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def held(self, lasting: timedelta, renew_s: float) -> HeldLease:
        return HeldLease(cast("Lease", self), lasting, renew_s=renew_s, clock=lambda: self.now)

    def claim(self, lasting: timedelta, *, succeeds: bool) -> int | None:
        assert lasting
        assert succeeds
        if self.taken_over:
            return None
        self.owner_token += 1
        return self.owner_token

    def renew(self, token: int, lasting: timedelta) -> bool:
        assert lasting
        return token == self.owner_token and not self.taken_over

    def release(self, token: int) -> None:
        assert token == self.owner_token
