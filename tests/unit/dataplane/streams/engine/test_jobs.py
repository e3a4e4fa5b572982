"""The rules by which jobs start, fail and stop, with an invented clock and invented queries."""

from collections.abc import Mapping
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from caraway.dataplane.streams.engine.jobs import (
    FIRST_BACKOFF_SECONDS,
    LAST_BACKOFF_SECONDS,
    RECOVERED_SECONDS,
    Jobs,
    JobStatus,
    brief,
)
from caraway.dataplane.streams.engine.phases import Phase
from caraway.dataplane.streams.engine.spark_runtime import staggered
from caraway.graph.plan.model import JobPlan
from caraway.state.model import JobState
from tests.unit.dataplane.streams.plans import job, topic


class AtOnce(Executor):
    """An executor that runs everything in the calling thread."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 (a future keeps any)
            future.set_exception(error)
        return future


class FakeQuery:
    def __init__(self, phase: Phase) -> None:
        self.phase = phase
        self.error: str | None = None
        self.over = False
        self.stopped = False

    def failure(self) -> str | None:
        return self.error

    def is_over(self) -> bool:
        return self.over

    def progress(self) -> Mapping[str, object]:
        return {"rows": 3}

    def stop(self) -> None:
        self.stopped = True


class FakeRuntime:
    def __init__(self) -> None:
        self.queries: list[FakeQuery] = []
        self.refusal: Exception | None = None
        self.next_phase = Phase.LIVE
        self.came_from: list[Phase | None] = []

    def start(self, plan: JobPlan, was: Phase | None = None) -> FakeQuery:
        if self.refusal is not None:
            raise self.refusal
        self.came_from.append(was)
        self.queries.append(FakeQuery(self.next_phase))
        return self.queries[-1]


class Rig:
    def __init__(self) -> None:
        self.now = 0.0
        self.runtime = FakeRuntime()
        self.jobs = Jobs(self.runtime, AtOnce(), lambda: self.now)

    def state(self, *wanted: str) -> dict[str, JobState]:
        """Look at the jobs of these names once, and return their states."""
        return {job_id: status.state for job_id, status in self.jobs.reconcile([*map(plan, wanted)]).items()}

    def status(self, job_id: str) -> JobStatus:
        return self.jobs.reconcile([plan(job_id)])[job_id]

    def started(self, *wanted: str) -> None:
        for _ in range(2):
            self.state(*wanted)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def plan(job_id: str) -> JobPlan:
    return job(job_id, topic("d"))


def test_a_wanted_job_starts_and_runs(rig: Rig) -> None:
    assert rig.state("a") == {"a": JobState.STARTING}
    assert rig.state("a") == {"a": JobState.RUNNING}
    assert rig.status("a").progress == {"rows": 3}
    assert len(rig.runtime.queries) == 1


def test_a_job_that_is_not_wanted_any_more_is_stopped_and_reported_as_stopped_once(rig: Rig) -> None:
    rig.started("a", "b")
    assert rig.state("b") == {"a": JobState.STOPPED, "b": JobState.RUNNING}
    assert [query.stopped for query in rig.runtime.queries] == [True, False]
    assert rig.state("b") == {"b": JobState.RUNNING}


def test_a_failed_query_is_started_again_after_a_pause(rig: Rig) -> None:
    rig.started("a")
    rig.runtime.queries[0].error = "broken"
    failed = rig.status("a")
    assert (failed.state, failed.error, failed.attempts) == (JobState.FAILING, "broken", 1)
    rig.state("a")
    assert len(rig.runtime.queries) == 1, "not before the pause is over"
    rig.now += FIRST_BACKOFF_SECONDS
    rig.state("a")
    running = rig.status("a")
    assert (running.state, running.error, running.attempts) == (JobState.RUNNING, "broken", 2)
    rig.now += RECOVERED_SECONDS
    assert rig.status("a").error == ""


def test_pauses_grow_up_to_a_bound_and_start_over_after_recovery(rig: Rig) -> None:
    rig.runtime.refusal = OSError("no broker")
    pauses: list[float] = []
    for _ in range(8):
        rig.started("a")
        before = rig.now
        while rig.status("a").attempts == len(pauses) + 1:
            rig.now += 1
        pauses.append(rig.now - before)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    assert pauses[-1] == LAST_BACKOFF_SECONDS
    rig.runtime.refusal = None
    while rig.state("a") != {"a": JobState.RUNNING}:
        rig.now += 1
    rig.now += RECOVERED_SECONDS
    rig.state("a")
    rig.runtime.queries[-1].error = "again"
    rig.state("a")
    rig.now += FIRST_BACKOFF_SECONDS
    rig.state("a")
    assert rig.state("a") == {"a": JobState.RUNNING}


def test_one_job_that_fails_leaves_the_others_alone(rig: Rig) -> None:
    rig.started("a", "b")
    rig.runtime.queries[0].error = "broken"
    assert rig.state("a", "b") == {"a": JobState.FAILING, "b": JobState.RUNNING}


def test_stop_all_ends_every_query(rig: Rig) -> None:
    rig.started("a", "b")
    assert all(future.done() for future in rig.jobs.stop_all())
    assert all(query.stopped for query in rig.runtime.queries)


def test_a_job_whose_backlog_is_done_goes_on_live_and_runs_all_the_time(rig: Rig) -> None:
    rig.runtime.next_phase = Phase.BACKFILL
    rig.state("a")
    assert rig.state("a") == {"a": JobState.RUNNING}
    backfill = rig.runtime.queries[0]
    backfill.over = True
    rig.runtime.next_phase = Phase.LIVE
    states = [rig.state("a") for _ in range(3)]
    assert states == [{"a": JobState.RUNNING}] * 3
    assert backfill.stopped, "two queries on one checkpoint"
    assert [query.phase for query in rig.runtime.queries] == [Phase.BACKFILL, Phase.LIVE]
    assert rig.runtime.came_from == [None, Phase.BACKFILL]
    assert rig.status("a").attempts == 1


def test_a_job_that_fails_between_its_phases_is_started_anew(rig: Rig) -> None:
    rig.started("a")
    rig.runtime.queries[0].over = True
    rig.runtime.refusal = OSError("no broker")
    rig.state("a")
    assert rig.state("a") == {"a": JobState.FAILING}
    rig.runtime.refusal = None
    rig.now += FIRST_BACKOFF_SECONDS
    rig.state("a")
    assert rig.state("a") == {"a": JobState.RUNNING}
    assert rig.runtime.came_from == [None, None]


def test_a_job_that_is_dropped_between_its_phases_is_stopped(rig: Rig) -> None:
    rig.started("a")
    rig.runtime.queries[0].over = True
    rig.state("a")
    assert rig.state() == {"a": JobState.STOPPED}
    assert [query.stopped for query in rig.runtime.queries] == [True, True]


def test_brief_keeps_messages_and_drops_traces() -> None:
    trace = "=== Streaming Query ===\nBoom: it broke\n\tat a.b.C(D.java:1)\n\n  because\n\tat e.f\n"
    assert brief(trace) == "Boom: it broke\nbecause"
    assert brief(OSError("no")) == "OSError: no"
    assert brief("x" * 900, because="the disk is full") == "x" * 573 + "\ncaused by the disk is full"
    assert brief("it broke: the disk is full", because="the disk is full") == "it broke: the disk is full"


def test_intervals_differ_and_are_never_shorter() -> None:
    intervals = {staggered(60, f"job {i}") for i in range(100)}
    assert len(intervals) > 95
    assert max(intervals) - min(intervals) > 9
    # Spark accepts no interval below five seconds.
    assert min(staggered(5, f"job {i}") for i in range(100)) >= 5
    assert 60 <= min(intervals) <= max(intervals) < 70
    assert staggered(60, "a") == staggered(60, "a")
