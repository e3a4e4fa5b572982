"""Tests of freshness: heartbeats along plans, over pipelines that are slow, stand still and lose markers."""

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caraway.apps.server.freshness.arrivals import Arrivals
from caraway.apps.server.freshness.freshness import FreshnessWatch
from caraway.apps.server.freshness.heartbeats import IDLE_FACTOR, RESEND_S, AdvanceClock, Heartbeats, explain
from caraway.dataplane.index.feeding.worker import IndexStatus
from caraway.dataplane.topics.markers import COPIES_BYTES, STEP_BYTES, job_tag
from caraway.errors import UnavailableError
from caraway.graph.plan.model import GraphPlan, IndexPlan, JobPlan
from caraway.state.model import DesiredState, JobRecord, JobState
from tests.unit.apps.server.reports import index_status, job_record
from tests.unit.apps.server.visits import Busy, Hourly, Pages, Visits, plan_of

INTERVAL_S = 5.0
PLAN = plan_of(Visits, Hourly, Busy, Pages)
VISITS = next(topic.name for topic in PLAN.topics if topic.dataset == "Visits")
PAGES = next(topic.name for topic in PLAN.topics if topic.dataset == "Pages")


def job_of(dataset_name: str) -> JobPlan:
    return next(job for job in PLAN.jobs if job.dataset == dataset_name)


@dataclass
class World:
    """Topics with one partition, jobs and indexes that do as many messages as they are told to.

    A message is the time of acceptance of the oldest row from which it follows; a marker is its token.
    """

    now: float = 0.0
    topics: dict[str, list[float | bytes]] = field(default_factory=dict)
    job_at: dict[str, dict[str, int]] = field(default_factory=dict)
    index_at: dict[str, int] = field(default_factory=dict)
    emitted: dict[str, int] = field(default_factory=dict)
    arrivals: Arrivals = field(default_factory=Arrivals)
    delays: list[tuple[str, float]] = field(default_factory=list)
    markers: int = 0
    away: bool = False
    plan: GraphPlan = PLAN
    heartbeats: Heartbeats = field(init=False)
    # The function that closes windows by the clock, which a test may replace.
    advance_clock: AdvanceClock = field(default=lambda _asset, _at, _goal: ())

    def __post_init__(self) -> None:
        self.topics = {topic.name: [] for topic in PLAN.topics}
        self.heartbeats = Heartbeats(
            self,
            self.arrivals,
            INTERVAL_S,
            lambda name, delay: self.delays.append((name, delay)),
            advance_clock=lambda asset, at, goal: self.advance_clock(asset, at, goal),
        )
        self.heartbeats.follow([self.plan])

    def ends(self, topics: Collection[str]) -> Mapping[str, Mapping[int, int]]:
        if self.away:
            raise UnavailableError("no broker answers")
        return {name: {0: len(self.topics[name])} for name in topics if name in self.topics}

    def send(self, topic: str, token: bytes, partitions: Collection[int]) -> "Future[None]":
        sent: Future[None] = Future()
        assert set(partitions) == {0}
        if self.away:
            sent.set_exception(UnavailableError("no broker answers"))
        else:
            self.topics[topic].append(token)
            self.markers += 1
            sent.set_result(None)
        return sent

    def accept(self, topic: str) -> None:
        self.topics[topic].append(self.now)

    def run_job(self, job: JobPlan, messages: int) -> None:
        """Process messages of the job's inputs; markers become arrivals on the output."""
        for read in job.inputs:
            at = self.job_at.setdefault(job.job_id, {})
            begin = at.get(read.name, 0)
            for message in self.topics[read.name][begin : begin + messages]:
                if isinstance(message, float):
                    self.topics[job.output.name].append(message)
                elif not message.startswith(b"arrival"):
                    head = (1).to_bytes(COPIES_BYTES, "big") + job_tag(job.job_id)
                    self.topics[job.output.name].append(b"arrival" + head + message + bytes(STEP_BYTES))
            at[read.name] = min(begin + messages, len(self.topics[read.name]))

    def run_index(self, index: IndexPlan, messages: int) -> None:
        """Apply messages of the index's topic; arrivals are noted, and rows sent on if jobs read them."""
        name = index.asset.hex()
        begin = self.index_at.get(name, 0)
        for offset, message in enumerate(self.topics[index.topic][begin : begin + messages], begin):
            if isinstance(message, bytes) and message.startswith(b"arrival"):
                self.arrivals.note(index.topic, [(b"", message.removeprefix(b"arrival"), 0, offset)])
            elif index.emits is not None and isinstance(message, float):
                self.topics[index.emits.name].append(message)
        self.index_at[name] = min(begin + messages, len(self.topics[index.topic]))

    def run_all(self) -> None:
        """Process all messages everywhere."""
        for _ in range(2):
            for job in PLAN.jobs:
                self.run_job(job, 10_000)
                self.run_indexes(10_000)

    def run_indexes(self, messages: int) -> None:
        for index in PLAN.indexes:
            self.run_index(index, messages)

    def statuses(self) -> list[IndexStatus]:
        return [index_status(index, offsets={0: self.index_at.get(index.asset.hex(), 0)}) for index in PLAN.indexes]

    def begin(self) -> None:
        self.heartbeats.begin(self.now, {index.topic for index in PLAN.indexes})
        self.advance()

    def advance(self, reports: Collection[JobRecord] = ()) -> None:
        self.heartbeats.advance(lambda: self.now, self.statuses(), reports, whole=True)

    def age(self, name: str) -> float | None:
        served = next(each for each in self.heartbeats.report(self.statuses()) if each.dataset == name)
        known = [
            age for age in (served.delay, None if served.since is None else self.now - served.since) if age is not None
        ]
        return max(known, default=None)

    def done_at(self, name: str) -> float:
        return next(each for each in self.heartbeats.report(self.statuses()) if each.dataset == name).done_at

    def waits_for(self, name: str) -> str:
        return next(each for each in self.heartbeats.report(self.statuses()) if each.dataset == name).waits_for

    def oldest_unread(self, name: str) -> float | None:
        """Return when the oldest row was accepted of which the dataset's index doesn't have everything."""
        index = next(each for each in PLAN.indexes if each.dataset == name)
        waiting: list[float | bytes] = list(self.topics[index.topic][self.index_at.get(index.asset.hex(), 0) :])
        if name == "Busy":
            first, last = job_of("Hourly"), job_of("Busy")
            emitting = next(each for each in PLAN.indexes if each.emits is not None)
            for job in (first, last):
                for read in job.inputs:
                    waiting += self.topics[read.name][self.job_at.get(job.job_id, {}).get(read.name, 0) :]
            waiting += self.topics[emitting.topic][self.index_at.get(emitting.asset.hex(), 0) :]
        return min((message for message in waiting if isinstance(message, float)), default=None)


def settle(world: World) -> None:
    """Move a heartbeat through everything."""
    for _ in range(4):
        world.run_all()
        world.advance()


def test_a_heartbeat_measures_each_dataset_when_nothing_comes() -> None:
    world = World()
    assert world.age("Busy") is None
    world.begin()
    world.now = 0.25
    settle(world)
    assert world.age("Pages") == 0.0, "its index had nothing to do"
    assert world.age("Busy") == 0.25
    assert ("Busy", 0.25) in world.delays
    assert not world.heartbeats.under_way
    # Rows of datasets are what they were: only markers were written.
    assert all(isinstance(message, bytes) for messages in world.topics.values() for message in messages)


def test_a_dead_job_makes_the_datasets_behind_it_old_and_no_others() -> None:
    world = World()
    world.begin()
    settle(world)
    for beat in range(1, 21):
        world.now = beat * INTERVAL_S
        world.accept(VISITS)
        world.accept(PAGES)
        world.begin()
        world.run_indexes(10_000)
        world.advance()
        assert world.age("Pages") == 0.0
    assert world.age("Busy") == 19 * INTERVAL_S
    assert world.waits_for("Busy") == "the job of Hourly"
    assert world.waits_for("Pages") == ""
    # Markers are bounded while it is down: two that are awaited, of which the newer one is replaced now and then.
    assert world.markers <= 3 + 20 * INTERVAL_S / RESEND_S
    settle(world)
    world.now += INTERVAL_S
    world.begin()
    settle(world)
    assert world.age("Busy") == 0.0


def test_markers_are_rarer_when_no_rows_come() -> None:
    world = World()
    for beat in range(31):
        world.now = beat * INTERVAL_S
        world.begin()
        settle(world)
    idle = world.markers
    assert idle == 2 * (1 + 30 // IDLE_FACTOR)
    for beat in range(31, 61):
        world.now = beat * INTERVAL_S
        world.accept(VISITS)
        world.begin()
        settle(world)
    assert world.markers - idle == 2 * 30


def test_without_a_broker_everything_waits_for_it() -> None:
    world = World()
    world.begin()
    settle(world)
    world.away = True
    for beat in (1, 2):
        world.now = beat * INTERVAL_S
        with pytest.raises(UnavailableError):
            world.begin()
    assert world.age("Pages") == world.age("Busy") == INTERVAL_S
    assert world.waits_for("Pages") == "Kafka: no broker answers"
    world.away = False
    world.now = 3 * INTERVAL_S
    world.begin()
    settle(world)
    assert world.age("Pages") == world.age("Busy") == 0.0


def test_a_marker_that_could_not_be_written_is_written_again() -> None:
    world = World()
    world.begin()
    settle(world)
    world.now = IDLE_FACTOR * INTERVAL_S
    world.heartbeats.begin(world.now, {index.topic for index in PLAN.indexes})
    world.away = True
    world.advance()
    world.away = False
    world.now += 1.0
    settle(world)
    assert world.age("Busy") == 1.0, "it isn't known that rows went through"
    world.now = (1 + IDLE_FACTOR) * INTERVAL_S
    world.begin()
    settle(world)
    assert world.age("Busy") == 0.0


def test_positions_that_engines_report_count_as_well() -> None:
    world = World()
    world.accept(VISITS)
    world.begin()
    first = job_of("Hourly")
    reached = job_record(first, progress={"positions": {VISITS: {"0": 1}}})
    world.run_indexes(10)
    world.advance([reached])
    assert world.waits_for("Busy") == "the job of Busy"


def test_a_server_that_does_not_send_the_rows_measures_nothing_behind_them() -> None:
    world = World()
    world.begin()
    settle(world)
    emitting = {index.asset.hex() for index in PLAN.indexes if index.emits is not None}
    here = [status for status in world.statuses() if status.asset not in emitting]
    assert [served.dataset for served in world.heartbeats.report(here)] == ["Pages"]


def test_the_reason_has_the_state_of_the_job() -> None:
    failing = job_record(job_of("Hourly"), state=JobState.FAILING, error="no slots")
    assert failing.desired is DesiredState.RUNNING
    assert explain("the job of Hourly", "Busy", [failing]) == "the job of Hourly, which is failing: no slots"
    assert explain("the index", "Busy", [failing]) == "the index of Busy"


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["visit", "page", "first", "last", "indexes", "wait", "away"]), st.integers(1, 3)),
    max_size=60,
)


def story(text: str) -> list[tuple[str, int]]:
    """Read actions from a text, each with its number."""
    return [(action, int(times)) for action, times in (each.split() for each in text.split(", "))]


@given(ACTIONS)
@example(story("away 1, visit 1, wait 2, wait 3, wait 3, away 1, wait 2"))
@example(story("visit 1, visit 1, first 2, wait 2, wait 3, wait 2, wait 3, away 1, indexes 2, visit 1"))
@example(story("visit 1, wait 3, wait 3, first 3, indexes 3, wait 3"))
def test_nothing_that_counts_as_readable_is_missing(actions: list[tuple[str, int]]) -> None:
    world = World()
    due = 0.0
    for action, times in actions:
        match action:
            case "visit":
                world.accept(VISITS)
            case "page":
                world.accept(PAGES)
            case "first":
                world.run_job(job_of("Hourly"), times)
            case "last":
                world.run_job(job_of("Busy"), times)
            case "indexes":
                world.run_indexes(times)
            case "wait":
                world.now += times
            case _:
                world.away = not world.away
        try:
            if world.now >= due:
                due = world.now + INTERVAL_S
                world.begin()
            world.advance()
        except UnavailableError:
            continue
        for name in ("Busy", "Pages"):
            oldest = world.oldest_unread(name)
            if oldest is None:
                continue
            # Rows accepted before that time are readable...
            assert world.done_at(name) <= oldest
            # ... and a row that isn't is known to be old, at the latest one heartbeat after it was accepted.
            age = world.age(name)
            assert age is None or age >= world.now - oldest - INTERVAL_S - 3
    world.away = False
    for _ in range(3):
        world.now += RESEND_S
        world.begin()
        settle(world)
    assert world.age("Busy") == world.age("Pages") == 0.0


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def watch(world: World, file: Path, clock: Clock) -> FreshnessWatch:
    writer: Any = None
    made = FreshnessWatch(
        "127.0.0.1:1",
        writer,
        plans=lambda: [PLAN],
        positions=world.statuses,
        jobs=tuple,
        arrivals=world.arrivals,
        advance_clock=world.advance_clock,
        interval_s=INTERVAL_S,
        file=file,
        whole=True,
        clock=clock,
        wall=lambda: 1_700_000_000.0 + clock.now,
    )
    made._heartbeats = world.heartbeats
    made._load()
    return made


def test_a_server_that_is_started_again_knows_the_age(tmp_path: Path) -> None:
    file, world, clock = tmp_path / "run" / "freshness.json", World(), Clock(1_000.0)
    first = watch(world, file, clock)

    def beat(freshness: FreshnessWatch, seconds: float) -> None:
        world.now = clock.now = clock.now + seconds
        freshness.step()

    beat(first, 0.0)
    settle(world)
    beat(first, INTERVAL_S)
    world.accept(VISITS)
    beat(first, INTERVAL_S)
    beat(first, 60.0)
    beat(first, INTERVAL_S)
    before = {each.dataset: each for each in first.of(PLAN)}
    assert before["Busy"].seconds == 60.0 + INTERVAL_S
    assert before["Pages"].seconds == 0.0

    again = World(topics=world.topics, job_at=world.job_at, index_at=world.index_at)
    again.topics = world.topics
    again.now = clock.now = clock.now + 10.0
    second = watch(again, file, clock)
    second.step()
    after = {each.dataset: each for each in second.of(PLAN)}
    assert after["Busy"].seconds == pytest.approx(60.0 + INTERVAL_S + 10.0, abs=0.1)
    assert after["Busy"].served_until == pytest.approx(before["Busy"].served_until, abs=0.1)
    settle(again)
    again.now = clock.now = clock.now + INTERVAL_S
    second.step()
    settle(again)
    again.now = clock.now = clock.now + INTERVAL_S
    second.step()
    assert {each.dataset: each.waits_for for each in second.of(PLAN)} == {"Busy": "", "Pages": ""}
