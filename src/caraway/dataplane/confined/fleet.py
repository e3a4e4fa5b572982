"""Fleets: the workers of all sources, or of all sinks, that are one server's share, each in a thread of its own."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

import sqlalchemy as sa

from caraway.dataplane.addresses.limits import Holder
from caraway.dataplane.confined.process import end_of
from caraway.errors import UnavailableError
from caraway.graph.secrets.hiding import HiddenSecrets
from caraway.process.recurring import Recurring
from caraway.state.ownership.leases import HeldLease, Lease
from caraway.state.ownership.members import Group
from caraway.state.ownership.shares import Shares

# The lease of a source or sink lasts 30 s and is renewed before a write if it is 3 s old, so a write begins with 27 s
# left. A writer to Kafka gives a record up after 10 s. So even if the process pauses for 15 s, no record arrives after
# another server has taken over.
LASTING = timedelta(seconds=30)
RENEWAL_S = 3.0
# Seconds between two attempts to claim the lease of a source or sink that another server holds.
STANDBY_S = 2.0
# Seconds between two looks at which sources or sinks are this server's share. Each look starts and stops workers;
# `set_plans` triggers one at once.
FOLLOW_S = 5.0
# A worker that stops may finish its current step for this many seconds. After that, its process is killed.
STOP_S = 5.0


class Worker(Protocol):
    """Works on one source or sink while this server has the right to."""

    def step(self) -> bool:
        """Work once; return False if another server has the right to work."""
        ...


P = TypeVar("P")
W = TypeVar("W", bound=Worker)
S = TypeVar("S")


class Leased(Generic[P, W]):
    """The work on one source or sink."""

    def __init__(
        self,
        plan: P,
        worker: W,
        *,
        title: str,
        secrets: HiddenSecrets,
        hold: Holder,
        retry_s: tuple[float, float],
        finish: Callable[[], object],
    ) -> None:
        """Prepare; nothing is done before `work` is started.

        Args:
            plan: The plan of the source or sink.
            worker: Its worker.
            title: The name of the thread.
            secrets: The secrets that the connector uses, which no error shows.
            hold: Holds the thread to the limits of the connector.
            retry_s: The pauses after errors; see `Recurring`.
            finish: Called once in the thread at the end; it stops the worker.
        """
        self.plan, self.worker = plan, worker
        self._secrets, self._hold = secrets, hold
        self._owned = False
        # `Recurring.failure` is the error of the last call. A call makes only one step, so that the first step that
        # succeeds clears the error.
        self.work = Recurring(
            title, self._step, self._pause_s, retry_s=retry_s, at_once=True, finish=finish, interrupt=end_of
        )

    def _step(self) -> None:
        with self._secrets.hidden(), self._hold():
            self._owned = self.worker.step()

    def _pause_s(self) -> float:
        """Return the seconds before the next step: 0 while this server may work, since a step waits itself."""
        return 0.0 if self._owned else STANDBY_S


class Fleet(Generic[P, W]):
    """The workers of one server. Thread safe."""

    def __init__(
        self,
        kind: str,
        engine: sa.Engine,
        group: Group,
        member: str,
        begin: Callable[[str, P], Leased[P, W]],
        *,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        """Prepare; no worker is started before `start`.

        Args:
            kind: The word for what is worked on, "source" or "sink".
            engine: The database (`caraway.state.database.connect`).
            group: The group of servers that share the work.
            member: The name of this server among them.
            begin: Makes the work of a plan, given its name.
            then: Called after each look at what is this server's share.
        """
        self._kind, self._engine, self._member = kind, engine, member
        self._begin, self._then = begin, then
        self._shares = Shares(engine, group, member)
        self.wanted: Mapping[str, P] = {}
        """The plans of all things by their names, also of those that other servers work on."""
        self._running: dict[str, Leased[P, W]] = {}
        self._lock = threading.Lock()
        self._follower = Recurring(f"{kind}s", self._follow, FOLLOW_S)

    def start(self) -> None:
        """Start to work."""
        self._follower.start()

    def stop(self) -> None:
        """Stop to work, and let other servers do it."""
        self._follower.stop(STOP_S)
        self.set_plans({})
        with suppress(UnavailableError):
            # `_follow` raises only if the members of the group were never known. No worker was started then, so none
            # has to be stopped.
            self._follow()
        with suppress(UnavailableError):
            self._shares.leave()

    def set_plans(self, wanted: Mapping[str, P]) -> None:
        """Work on these things from now on, which are given by their names."""
        self.wanted = wanted
        self._follower.wake()

    def right(self, name: str) -> HeldLease:
        """Return the right to work on a thing, which isn't held yet."""
        lease = Lease(engine=self._engine, name=f"{self._kind} {name}", owner=self._member)
        return HeldLease(lease, LASTING, renew_s=RENEWAL_S)

    def statuses(self, status: Callable[[Leased[P, W]], S], standby: Callable[[P], S]) -> list[S]:
        """Return the state of each thing: `status` of this server's work, or `standby` of a plan of others."""
        running = dict(self._running)
        others = [standby(plan) for name, plan in self.wanted.items() if name not in running]
        return [*map(status, running.values()), *others]

    def _follow(self) -> None:
        """Start and stop workers, so that they are those of the plans that are this server's share.

        A worker that doesn't end within the time stays, so that no second one of its name starts; the next call waits
        for it again.
        """
        with self._lock:
            known = self.wanted
            mine = self._shares.mine(known)
            wanted = {name: plan for name, plan in known.items() if name in mine}
            gone = [name for name, running in self._running.items() if wanted.get(name) != running.plan]
            for name in gone:
                self._running[name].work.stopping.set()
            for name in gone:
                if self._running[name].work.stop(STOP_S):
                    del self._running[name]
            for name in wanted.keys() - self._running.keys():
                self._running[name] = self._begin(name, wanted[name])
                self._running[name].work.start()
        self._then()
