"""Engines start, stop, are killed, cut off, paused and replaced: no job runs twice, and in the end each one runs."""

import itertools
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from caraway.dataplane.streams.engine.job_ownership import JobOwnership, OwnedJobs, Work
from caraway.errors import UnavailableError
from tests.effort import examples, timeout_of
from tests.unit.state.ownership.members import MemoryMember, Table

NAMES = "ab"
JOBS = tuple(f"job{n}" for n in range(3))
ACTIONS = ("renew", "exchange", "look", "act", "end")
GRACE_SECONDS = 8.0


@dataclass
class Engine:
    """An engine's process: it looks at its jobs now and then, starts queries, and stops them some time later."""

    member: MemoryMember
    ownership: JobOwnership
    seen: OwnedJobs = field(default_factory=OwnedJobs)
    told: Work = field(default_factory=Work)
    # The running queries, each with the folder that it writes to.
    queries: dict[str, Path] = field(default_factory=dict)
    ending: dict[str, Path] = field(default_factory=dict)

    @property
    def writes(self) -> list[tuple[str, Path]]:
        return [*self.queries.items(), *self.ending.items()]

    def look(self) -> None:
        self.seen = self.ownership.owned

    def act(self) -> None:
        """Start and stop queries by the jobs seen last, which may be outdated by now."""
        for job in self.queries.keys() - self.seen.folders.keys():
            self.ending[job] = self.queries.pop(job)
        for job in self.seen.folders.keys() - self.queries.keys() - self.ending.keys():
            with suppress(UnavailableError):
                self.queries[job] = self.ownership.folder(job)
        self.told = Work(version=self.seen.version, jobs=frozenset((*self.queries, *self.ending)))


class Machines(RuleBasedStateMachine):
    """Some machines, each with at most one engine, and engines that were replaced while they were paused."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.now = 0.0
        self.wanted = set(JOBS)
        self.engines: dict[str, Engine] = {}
        self.zombies: list[Engine] = []
        self.numbers = itertools.count()

    def _join(self, name: str, *, successor: bool) -> None:
        member = self.table.join(name)
        ownership = JobOwnership(
            member,
            lambda job, token: Path(job) / str(token),
            successor=successor,
            grace_seconds=GRACE_SECONDS,
            clock=lambda: self.now,
        )
        self.engines[name] = Engine(member, ownership)

    @rule(name=st.sampled_from(NAMES), fate=st.sampled_from(["killed", "replaced", "missed", "leaves"]))
    def come_or_go(self, name: str, fate: str) -> None:
        """Start an engine, or stop it in one of several ways; one that is paused long enough is replaced by another."""
        engine = self.engines.get(name)
        if engine is None:
            # An engine knows by the lock on the data folder whether a replaced one is still there: its JVM holds the
            # lock.
            paused = any(zombie.member.node == name for zombie in self.zombies)
            self._join(name, successor=not paused)
            return
        match fate:
            case "missed":
                self.table.alive.pop(name, None)
                return
            case "leaves":
                with suppress(UnavailableError):
                    engine.ownership.leave()
                self.table.alive.pop(name, None)
        del self.engines[name]
        if fate == "replaced":
            self.zombies.append(engine)
            self._join(name, successor=False)

    @rule(name=st.sampled_from(NAMES), actions=st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=5))
    def go_on(self, name: str, actions: list[str]) -> None:
        if name in self.engines:
            for action in actions:
                self._do(self.engines[name], action)

    @precondition(lambda self: self.engines)
    @rule(times=st.integers(1, 3))
    def all_go_on(self, times: int) -> None:
        for _ in range(times):
            self.now += 0.25
            for engine in self.engines.values():
                for action in ACTIONS:
                    self._do(engine, action)

    @precondition(lambda self: self.zombies)
    @rule(data=st.data(), actions=st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=5))
    def wake(self, data: st.DataObject, actions: list[str]) -> None:
        zombie = data.draw(st.sampled_from(self.zombies))
        for action in actions:
            self._do(zombie, action)

    @rule(away=st.booleans(), lost=st.booleans(), seconds=st.sampled_from([0.25, 9.0]))
    def change(self, away: bool, lost: bool, seconds: float) -> None:
        self.table.away, self.table.answers_get_lost = away, lost
        self.now += seconds

    @rule(job=st.sampled_from(JOBS))
    def want_or_not(self, job: str) -> None:
        self.wanted ^= {job}

    @invariant()
    def no_checkpoint_has_two_writers(self) -> None:
        writers = Counter(write for engine in (*self.engines.values(), *self.zombies) for write in engine.writes)
        assert not writers or max(writers.values()) == 1

    def teardown(self) -> None:
        """Check the end: the jobs are divided evenly among the engines, and each wanted job runs once."""
        self.table.away = self.table.answers_get_lost = False
        if not self.engines:
            self._join("z", successor=True)
        for name in self.table.alive.keys() - self.engines.keys():
            del self.table.alive[name]
        for _ in range(12):
            self.now += GRACE_SECONDS
            for engine in self.engines.values():
                for action in (*ACTIONS, "act"):
                    self._do(engine, action)
        counts = [len(engine.queries) for engine in self.engines.values()]
        run = Counter(job for engine in self.engines.values() for job in engine.queries)
        assert run == Counter(self.wanted)
        assert max(counts) - min(counts) <= 1
        # A replaced process may still run until it tries to renew; its folders belong to no current token.
        current = {
            (job, Path(job) / str(owned.token)) for job, owned in self.table.things.items() if job in self.wanted
        }
        assert not current & {write for zombie in self.zombies for write in zombie.writes}

    def _do(self, engine: Engine, action: str) -> None:
        name, token = engine.member.node, engine.member.token
        match action:
            case "renew":
                if not self.table.away and self.table.tokens[name] == token:
                    self.table.alive[name] = token
            case "exchange":
                with suppress(UnavailableError):
                    engine.ownership.exchange(self.wanted, engine.told)
            case "look":
                engine.look()
            case "act":
                engine.act()
            case _:
                engine.ending.clear()


@pytest.mark.slow
@pytest.mark.timeout(timeout_of(300))
def test_whatever_happens_each_job_is_run_by_one() -> None:
    run_state_machine_as_test(Machines, settings=settings(max_examples=examples(300), stateful_step_count=40))


def test_what_was_cut_off_waits_before_it_thinks_others_dead() -> None:
    table, now = Table(), [0.0]

    def ownership(name: str) -> JobOwnership:
        return JobOwnership(
            table.join(name),
            lambda job, token: Path(job) / str(token),
            successor=True,
            grace_seconds=GRACE_SECONDS,
            clock=lambda: now[0],
        )

    one, other = ownership("one"), ownership("other")
    one.exchange(["a"], Work())
    assert one.owned.folders == {"a": Path("a/1")}
    other.exchange(["a"], Work())
    # Postgres was unreachable, and `other` is connected again first.
    table.away = True
    with pytest.raises(UnavailableError):
        other.exchange(["a"], Work())
    table.away = False
    del table.alive["one"]
    other.exchange(["a"], Work())
    now[0] = GRACE_SECONDS - 0.1
    other.exchange(["a"], Work())
    assert not other.owned.folders
    now[0] = GRACE_SECONDS
    other.exchange(["a"], Work())
    assert other.owned.folders == {"a": Path("a/2")}
    one.exchange(["a"], Work(jobs=frozenset({"a"})))
    with pytest.raises(UnavailableError, match="another engine runs this job"):
        one.folder("a")
    assert not one.may_report("a")
    assert other.may_report("a")
