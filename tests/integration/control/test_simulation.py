"""Branches, assets and ledger on a real Postgres and an invented clock, with workers that crash, repeat and lag.

The assets are in memory. Each rule is an act of a user or a worker, or an accident; the laws are checked after every
act, and once more when all workers have finished.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from caraway.apps.server.control.worker import perform, sweep, work
from caraway.errors import ConflictError, UnavailableError, UnknownEntityError
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import DatasetSpec, Graph
from caraway.graph.wire.graphs import encode_graph
from caraway.state.allocation import ENDING, Action, Asset, AssetState, Settlement, settle
from caraway.state.blueprints import AssetKind, apply_generations, blueprints
from caraway.state.branches import Branches
from caraway.state.ledger import ActionOutcome, Claim, Ledger
from caraway.state.model import MAIN, NewCommit, Role
from caraway.state.reader import StateReader
from caraway.state.tables import asset_references, assets, branches, commits, jobs, ledger
from caraway.state.writer import StateWriter
from tests.effort import examples, timeout_of
from tests.integration.control.steps import CrashError, Steps, count_steps
from tests.unit.apps.server.control.graphs import clicks, spend, users

KEEP = timedelta(hours=1)
STEPS = 60
# 170 runs of 60 steps make the ten thousand steps of CI. `just simulate` takes sixty thousand others each time.
RUNS = 170

_CHOICES: tuple[tuple[DatasetSpec, ...], ...] = (
    (),
    (clicks(),),
    (users(),),
    (clicks(), spend()),
    (clicks(), spend(version=2, above=5.0)),
    (clicks(version=2, history_us=5), spend(version=3)),
    (clicks(), users(), spend()),
)
GRAPHS = tuple(Graph(datasets=datasets) for datasets in _CHOICES)
PLANS = {graph: plan_graph(graph) for graph in GRAPHS}
WANTED = {graph: {blueprint.content for blueprint in blueprints(PLANS[graph])} for graph in GRAPHS}
ENCODED = {graph: encode_graph(graph) for graph in GRAPHS}

# Deleting the rows of tables this small takes a tenth of the time of TRUNCATE, which creates new files.
EMPTY: tuple[sa.Executable, ...] = (
    sa.text("SET LOCAL session_replication_role = replica"),
    *(sa.delete(table) for table in (asset_references, ledger, assets, jobs, branches, commits)),
    sa.insert(branches).values(name=MAIN),
)
NOTHING = Settlement(cancel=frozenset(), open={})

graphs = st.sampled_from(GRAPHS)
# A commit takes some twenty steps, so a crash may hit any of them, or none.
crashes = st.none() | st.integers(0, 24)
names = st.sampled_from(["a", "b", "c/d"])


@dataclass
class World:
    """The existing assets. Some actions fail, some must be repeated before they are done."""

    there: set[str] = field(default_factory=set)
    made: Counter[str] = field(default_factory=Counter)
    broken: bool = False
    waiting: bool = False

    def create(self, kind: AssetKind, names: Sequence[str]) -> dict[str, str]:
        if self.broken:
            raise UnavailableError("the broker is away")
        if self.waiting and kind in {AssetKind.JOB, AssetKind.INDEX}:
            return dict.fromkeys(names, "it reads history")
        for identity in (f"{kind}:{name}" for name in names):
            if identity not in self.there:
                self.there.add(identity)
                self.made[identity] += 1
        return dict.fromkeys(names, "")

    def destroy(self, kind: AssetKind, names: Sequence[str]) -> dict[str, str]:
        if self.broken:
            raise UnavailableError("the broker is away")
        self.there -= {f"{kind}:{name}" for name in names}
        return dict.fromkeys(names, "")

    @property
    def topics(self) -> set[str]:
        return {name.partition(":")[2] for name in self.there if name.startswith(AssetKind.TOPIC)}


@dataclass
class Line:
    """A branch as its users know it."""

    head: str | None
    graph: Graph


@dataclass
class Hand:
    """The work of a worker: a claim, and its outcome once the action is done."""

    claim: Claim
    outcome: ActionOutcome | None = None


class Simulation(RuleBasedStateMachine):
    """A deployment."""

    engine: sa.Engine
    looking: sa.Engine
    steps: Steps

    def __init__(self) -> None:
        super().__init__()
        with self.engine.begin() as connection:
            for statement in EMPTY:
                connection.execute(statement)
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.world = World()
        self.reader = StateReader(self.looking)
        self.writer = StateWriter(self.engine, clock=self.clock, keep=KEEP)
        self.branches = Branches(self.engine, clock=self.clock, keep=KEEP)
        self.ledger = Ledger(self.engine, clock=self.clock, keep=KEEP)
        self.lines = {MAIN: Line(None, Graph())}
        self.hands: list[Hand] = []
        self.claims: set[tuple[int, int]] = set()
        self.numbers = itertools.count()
        # The commits that were made, each with its graph and its assets.
        self.made: dict[str, tuple[Graph, frozenset[str]]] = {}
        # True once a rollback brought back an asset that no branch needed: another generation may be in use beside it.
        self.brought_back = False

    def clock(self) -> datetime:
        return self.now

    def _name(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.lines)))

    def _crashing(self, after: int | None, action: Callable[[], None]) -> None:
        """Do something in a process that may crash during it, and then gets no answer."""
        self.steps.taken.clear()
        self.steps.at = after
        with suppress(CrashError):
            action()
        self.steps.at = None

    # The acts of users

    @rule(data=st.data(), graph=graphs, crash=crashes)
    def commit(self, data: st.DataObject, graph: Graph, crash: int | None) -> None:
        name = self._name(data)
        before = {asset.id for asset in self.reader.assets()}
        needed = set(self.reader.references())
        if (made := self._commit(name, graph, crash, None)) is not None:
            assert self.made[made][1] <= needed | (self._ids() - before), "nothing comes back that no branch needed"

    @precondition(lambda self: self.made)
    @rule(data=st.data(), crash=crashes)
    def roll_back(self, data: st.DataObject, crash: int | None) -> None:
        restored = data.draw(st.sampled_from(sorted(self.made)))
        graph, had = self.made[restored]
        left = {asset.id for asset in self.reader.assets() if asset.state not in ENDING}
        unneeded = left - set(self.reader.references())
        if (made := self._commit(self._name(data), graph, crash, restored)) is not None:
            self.brought_back |= bool(self.made[made][1] & unneeded)
            if had <= left:
                assert self.made[made][1] == had, "a rollback finds all that is still there"

    def _ids(self) -> set[str]:
        return {asset.id for asset in self.reader.assets()}

    def _commit(self, name: str, graph: Graph, crash: int | None, restores: str | None) -> str | None:
        """Make a commit, and return its id if it was made."""
        line = self.lines[name]
        commit = replace(self._new(name, line.head, graph), restores=restores)
        done = False

        def publish() -> None:
            nonlocal done
            self.writer.publish(commit)
            done = True

        self._crashing(crash, publish)
        # A user without an answer looks: the commit exists as a whole or not at all.
        if done or self.reader.head_id(name) == commit.id:
            self.lines[name] = Line(commit.id, graph)
            self.writer.publish(commit)
            plan = apply_generations(PLANS[graph], self.reader.generations(commit.id))
            names = {name.partition(":")[2] for name in self._used(name)}
            assert {topic.name for topic in plan.topics} | {job.job_id for job in plan.jobs} <= names
            self.made[commit.id] = graph, frozenset(self._used(name))
            return commit.id
        return None

    def _used(self, branch: str) -> set[str]:
        """Return the assets of a branch's head."""
        query = sa.select(asset_references.c.asset_id).where(
            asset_references.c.branch == branch, asset_references.c.role == Role.HEAD
        )
        with self.looking.connect() as connection:
            return set(connection.execute(query).scalars())

    @rule(data=st.data(), graph=graphs)
    def commit_too_late(self, data: st.DataObject, graph: Graph) -> None:
        name = self._name(data)
        with pytest.raises(ConflictError):
            self.writer.publish(self._new(name, "another head", graph))

    @rule(data=st.data(), name=names, crash=crashes)
    def clone(self, data: st.DataObject, name: str, crash: int | None) -> None:
        source = self._name(data)
        if name in self.lines:
            with pytest.raises(ConflictError):
                self.branches.clone(name, source)
            return
        before = self.reader.assets()
        self._crashing(crash, lambda: self.branches.clone(name, source))
        assert self.reader.assets() == before, "a clone makes nothing"
        if self._exists(name):
            self.lines[name] = Line(self.lines[source].head, self.lines[source].graph)

    @rule(name=names, crash=crashes)
    def create(self, name: str, crash: int | None) -> None:
        if name in self.lines:
            with pytest.raises(ConflictError):
                self.branches.create(name)
            return
        self._crashing(crash, lambda: self.branches.create(name))
        if self._exists(name):
            self.lines[name] = Line(None, Graph())

    @rule(name=names, crash=crashes)
    def delete(self, name: str, crash: int | None) -> None:
        if name not in self.lines:
            with pytest.raises(UnknownEntityError):
                self.branches.delete(name)
            return
        self._crashing(crash, lambda: self.branches.delete(name))
        if not self._exists(name):
            del self.lines[name]

    # The acts of workers

    @rule(crash=crashes, most=st.integers(1, 4))
    def claim(self, crash: int | None, most: int) -> None:
        def claim() -> None:
            for found in self.ledger.claims(most):
                assert (found.entry, found.token) not in self.claims, "no two leases with one token"
                self.claims.add((found.entry, found.token))
                self.hands.append(Hand(found))

        self._crashing(crash, claim)

    @precondition(lambda self: self.hands)
    @rule(data=st.data())
    def perform(self, data: st.DataObject) -> None:
        hand = data.draw(st.sampled_from(self.hands))
        (closed,) = perform([hand.claim], self.world)
        hand.outcome = closed.outcome

    @precondition(lambda self: any(hand.outcome for hand in self.hands))
    @rule(data=st.data(), crash=crashes, forgets=st.booleans())
    def close(self, data: st.DataObject, crash: int | None, forgets: bool) -> None:
        hand = data.draw(st.sampled_from([hand for hand in self.hands if hand.outcome is not None]))
        outcome = hand.outcome
        assert outcome is not None
        self._crashing(crash, lambda: _ignore(self.ledger.close(hand.claim, outcome, "as told")))
        if forgets:
            self.hands.remove(hand)

    @precondition(lambda self: self.hands)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.hands.remove(data.draw(st.sampled_from(self.hands)))

    @rule(crash=crashes)
    def work(self, crash: int | None) -> None:
        self._crashing(crash, lambda: _ignore(work(self.ledger, self.world, limit=20)))

    @rule(crash=crashes)
    def promote(self, crash: int | None) -> None:
        self._crashing(crash, lambda: _ignore(self.ledger.promote()))

    # Changes from outside

    @rule(seconds=st.sampled_from([0.3, 5, 31, 600, 4000, -5, -600]))
    def jump(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(broken=st.booleans(), waiting=st.booleans())
    def change(self, broken: bool, waiting: bool) -> None:
        self.world.broken, self.world.waiting = broken, waiting

    # The laws

    @invariant()
    def the_laws_hold(self) -> None:
        # Each query costs a round trip, and these are most of the cost of a step: two queries serve all checks.
        existing, references = self.reader.assets(), self.reader.references()
        self._branches_stand_where_their_last_commits_left_them()
        self._assets_are_those_that_branches_need({asset.id: asset for asset in existing}, references)
        entries = {entry.asset_id: Action(entry.action) for entry in self.reader.ledger()}
        assert settle(existing, references.keys(), entries) == NOTHING, "the ledger asks for what is missing"

    def _branches_stand_where_their_last_commits_left_them(self) -> None:
        heads = self.reader.branch_heads()
        assert {branch.name: branch.head for branch in heads.branches} == {
            name: line.head for name, line in self.lines.items()
        }

    def _assets_are_those_that_branches_need(
        self, assets: Mapping[str, Asset], references: Mapping[str, frozenset[str]]
    ) -> None:
        for name, line in self.lines.items():
            own = {assets[asset_id].content for asset_id, branches in references.items() if name in branches}
            assert own >= WANTED[line.graph]
        for asset_id in references:
            asset = assets[asset_id]
            assert asset.state not in ENDING, "nothing is destroyed that anybody refers to"
            assert all(below in references for below in asset.requires)
            if asset.state is AssetState.READY:
                assert asset.id in self.world.there
        shared = Counter(assets[asset_id].content for asset_id in references)
        assert self.brought_back or set(shared.values()) <= {1}, "branches share, unless a rollback brought one back"

    def teardown(self) -> None:
        """Check the end: without commits and failures, and after late workers, exactly the wanted assets exist."""
        self.world.broken = self.world.waiting = False
        for _ in range(200):
            self.now += timedelta(minutes=40)
            work(self.ledger, self.world, limit=1000)
            for hand in self.hands:
                perform([hand.claim], self.world)
            self.hands = self.hands[1:]
            if not self.hands and not self.reader.ledger():
                break
        work(self.ledger, self.world, limit=1000)
        sweep(self.ledger, self.world.topics, lambda names: self._drop(names))
        assets = self.reader.assets()
        live = {asset.id for asset in assets if asset.state is not AssetState.GONE}
        needed = set().union(*(WANTED[line.graph] for line in self.lines.values()))
        assert {asset.content for asset in assets if asset.id in live} == needed
        assert set(self.reader.references()) == live
        assert not self.reader.ledger()
        topics = {asset.name for asset in assets if asset.id in live and asset.kind is AssetKind.TOPIC}
        assert self.world.topics == topics
        assert live <= self.world.there
        assert {self.world.made[name] for name in live} <= {1}, "the effect of a step is there once"
        assert all(branch.serving == branch.head for branch in self.reader.branch_heads().branches)

    def _drop(self, names: object) -> None:
        assert isinstance(names, frozenset)
        for name in names:
            self.world.destroy(AssetKind.TOPIC, [name])

    def _exists(self, name: str) -> bool:
        return name in {branch.name for branch in self.reader.branch_heads().branches}

    def _new(self, branch: str, parent: str | None, graph: Graph) -> NewCommit:
        return NewCommit(
            id=f"commit {next(self.numbers)}",
            branch=branch,
            parent=parent,
            message="",
            author="",
            graph=ENCODED[graph],
            fingerprint="",
            summary=(),
            plan=PLANS[graph],
        )


def _ignore(_: object) -> None:
    pass


@pytest.fixture
def engine(postgres: str) -> Iterator[sa.Engine]:
    url = sa.make_url(postgres).set(drivername="postgresql+psycopg")
    # Only clients crash here, not Postgres, so it needn't wait for its disk at each commit.
    engine = sa.create_engine(url, connect_args={"options": "-c synchronous_commit=off"})
    yield engine
    engine.dispose()


@pytest.fixture
def looking(engine: sa.Engine) -> Iterator[sa.Engine]:
    """Yield an engine for reads, each of which takes one round trip."""
    looking = sa.create_engine(engine.url, isolation_level="AUTOCOMMIT", pool_reset_on_return=None)
    yield looking
    looking.dispose()


@pytest.mark.full(reason="a simulation of a minute; each kind of step has tests of its own")
@pytest.mark.timeout(timeout_of(900))
def test_whatever_happens_all_ends_well(engine: sa.Engine, looking: sa.Engine) -> None:
    def crash() -> None:
        raise CrashError

    Simulation.engine, Simulation.looking, Simulation.steps = engine, looking, Steps(act=crash)
    count_steps(engine, Simulation.steps)
    run_state_machine_as_test(
        Simulation,
        settings=settings(
            max_examples=examples(RUNS),
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
