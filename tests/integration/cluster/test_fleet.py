"""Fleets in a real Postgres: each thing has one worker at a time, whoever comes and goes, and a new plan a new one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import sqlalchemy as sa

from caraway.dataplane.confined import fleet as fleets
from caraway.dataplane.confined.fleet import Fleet, Leased
from caraway.graph.secrets.hiding import HiddenSecrets
from caraway.state.ownership.leases import HeldLease
from caraway.state.ownership.members import READERS
from tests.unit.process.children.waiting import eventually

THINGS = [f"thing-{number}" for number in range(6)]


class Worker:
    """Holds the right to a thing from its first step on."""

    def __init__(self, right: HeldLease, name: str, workers: "Workers") -> None:
        self.right, self.name, self.workers = right, name, workers

    def step(self) -> bool:
        owns = self.right.keep(succeeds=True)
        if owns:
            others = self.workers.owners.setdefault(self.name, set()) - {self}
            assert not others, "two workers have the right to one thing"
            self.workers.owners[self.name].add(self)
        # A step waits for rows itself.
        self.workers.pause.wait(0.02)
        return owns

    def stop(self) -> None:
        self.workers.owners.get(self.name, set()).discard(self)
        self.right.release()


class Workers:
    """The workers of all servers that have the right to a thing, by its name."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.owners: dict[str, set[Worker]] = {}
        self.begun: list[tuple[str, str, str]] = []
        self.pause = threading.Event()

    @contextmanager
    def server(self, member: str) -> Iterator[Fleet[str, Worker]]:
        """Yield the running fleet of a server."""

        def begin(name: str, plan: str) -> Leased[str, Worker]:
            self.begun.append((member, name, plan))
            worker = Worker(fleet.right(name), name, self)
            hold: Any = nullcontext
            secrets = HiddenSecrets(str)
            retry = (0.02, 0.02)
            return Leased(plan, worker, title=name, secrets=secrets, hold=hold, retry_s=retry, finish=worker.stop)

        fleet = Fleet("source", self.engine, READERS, member, begin)
        fleet.start()
        try:
            yield fleet
        finally:
            fleet.stop()

    def worked_on(self) -> set[str]:
        """Return the things that are worked on now."""
        return {name for name, owners in self.owners.items() if owners}


@pytest.fixture
def workers(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> Workers:
    monkeypatch.setattr(fleets, "STANDBY_S", 0.02)
    monkeypatch.setattr(fleets, "FOLLOW_S", 0.05)
    return Workers(engine)


def test_each_thing_has_one_worker_and_passes_to_others_when_its_server_stops(workers: Workers) -> None:
    plans = dict.fromkeys(THINGS, "a")
    with workers.server("one") as one:
        with workers.server("two") as two:
            for fleet in (one, two):
                fleet.set_plans(plans)
            eventually(lambda: workers.worked_on() == set(THINGS))
            eventually(lambda: {member for member, *_ in workers.begun} == {"one", "two"})
            states = [fleet.statuses(lambda running: running.worker.name, lambda plan: plan) for fleet in (one, two)]
            assert [len(found) for found in states] == [len(THINGS)] * 2
        eventually(lambda: workers.worked_on() == set(THINGS))
        eventually(lambda: "a" not in one.statuses(lambda running: running.worker.name, lambda plan: plan))
    assert not workers.worked_on()


def test_a_new_plan_has_a_new_worker_and_a_plan_that_is_gone_none(workers: Workers) -> None:
    with workers.server("one") as one:
        one.set_plans({"first": "a", "second": "a"})
        eventually(lambda: workers.worked_on() == {"first", "second"})
        one.set_plans({"first": "b"})
        eventually(lambda: workers.begun[-1] == ("one", "first", "b") and workers.worked_on() == {"first"})
    assert sorted(workers.begun[:2]) == [("one", "first", "a"), ("one", "second", "a")]
    assert len(workers.begun) == 3
