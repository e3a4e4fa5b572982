"""Runs of jobs begin and end as engines report them."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from caraway.offline.monitoring.openlineage.runs import DECODER, ENCODER, Key, Run, Turn, changes
from caraway.state.model import DesiredState, JobRecord, JobState

JOB = JobRecord(
    job_id="job",
    commit_id="c",
    dataset="Orders",
    pipeline="make",
    mode="real_time",
    mode_reason="",
    desired=DesiredState.RUNNING,
    state=JobState.RUNNING,
    error="",
    attempts=1,
    updated_at=datetime(2026, 5, 1, tzinfo=UTC),
)


class Registry:
    """The jobs over time; each look numbers the runs that it offers."""

    def __init__(self) -> None:
        self.known: dict[Key, Run] = {}
        self.looks = 0

    def look(self, *jobs: JobRecord, branches: tuple[str, ...] = ("main",)) -> list[tuple[str, str, str]]:
        """Return what has happened: the branch, the change, and the run."""
        self.looks += 1
        needed = {
            (branch, "job"): Run(
                run_id=f"run {self.looks}", branch=branch, dataset="Orders", pipeline="make", job_id="job", attempts=0
            )
            for branch in branches
        }
        found, self.known = changes(self.known, needed, jobs)
        # Another server goes on with what was written.
        self.known = {(run.branch, run.job_id): run for run in DECODER.decode(ENCODER.encode([*self.known.values()]))}
        return [(change.run.branch, change.turn.value, change.run.run_id) for change in found]


@pytest.fixture
def registry() -> Registry:
    return Registry()


def test_a_job_starts_fails_starts_again_and_is_stopped(registry: Registry) -> None:
    assert registry.look() == []
    assert registry.look(replace(JOB, state=JobState.PENDING, attempts=0)) == []
    assert registry.look(replace(JOB, state=JobState.STARTING)) == [("main", Turn.START, "run 3")]
    assert registry.look(JOB) == []
    assert registry.look(replace(JOB, state=JobState.FAILING)) == [("main", Turn.FAIL, "run 3")]
    assert registry.look(replace(JOB, state=JobState.FAILING)) == []
    assert registry.look(replace(JOB, attempts=2)) == [("main", Turn.START, "run 7")]
    assert registry.look(replace(JOB, attempts=2, state=JobState.STOPPED)) == [("main", Turn.COMPLETE, "run 7")]
    assert registry.look(replace(JOB, attempts=2, state=JobState.STOPPED)) == []


def test_a_start_between_two_looks_is_another_run(registry: Registry) -> None:
    registry.look(JOB)
    assert registry.look(replace(JOB, attempts=2)) == [("main", Turn.ABORT, "run 1"), ("main", Turn.START, "run 2")]
    # An engine that takes over counts from 0.
    assert registry.look(replace(JOB, attempts=0, state=JobState.PENDING)) == [("main", Turn.ABORT, "run 2")]
    assert registry.look(JOB) == [("main", Turn.START, "run 4")]


def test_a_job_has_a_run_for_each_branch_that_needs_it(registry: Registry) -> None:
    registry.look(JOB)
    assert registry.look(JOB, branches=("copy", "main")) == [("copy", Turn.START, "run 2")]
    assert registry.look(JOB, branches=("copy",)) == [("main", Turn.COMPLETE, "run 1")]
    assert registry.look(branches=()) == [("copy", Turn.COMPLETE, "run 2")]
