"""Tests of the counts of extractions, and of the metrics of jobs."""

from dataclasses import replace
from datetime import UTC, datetime

from caraway.server.metrics import JOBS, MAX_COMBINATIONS, MAX_WORKFLOWS, FeatureCounts, set_jobs
from caraway.state.model import DesiredState, JobRecord, JobState


def counts(of: FeatureCounts) -> dict[tuple[str, str, str], float]:
    (family,) = of.collect()
    return {(s.labels["featureset"], s.labels["feature"], s.labels["workflow"]): s.value for s in family.samples}


def test_queries_count_for_each_of_their_features() -> None:
    counted = FeatureCounts()
    counted.add(("A.x", "A.y"), "default", 3)
    counted.add(("A.y",), "risk", 2)
    counted.add(("A.y",), "default", 1)
    assert counts(counted) == {("A", "x", "default"): 3, ("A", "y", "default"): 4, ("A", "y", "risk"): 2}


def test_neither_workflows_nor_combinations_fill_the_memory() -> None:
    counted = FeatureCounts()
    names = {counted.workflow(f"w{number}") for number in range(2 * MAX_WORKFLOWS)}
    assert len(names) == MAX_WORKFLOWS + 1
    assert counted.workflow(None) == "default"
    for number in range(MAX_COMBINATIONS + 10):
        counted.add(("A.x",) * (number + 1), "default", 1)
    assert len(counted._rows) <= MAX_COMBINATIONS
    assert counts(counted) == {("A", "x", "default"): sum(range(1, MAX_COMBINATIONS + 11))}


def test_jobs_that_must_run_tell_their_figures() -> None:
    job = JobRecord(
        job_id="A.1",
        commit_id="c",
        dataset="A",
        pipeline="p",
        mode="real-time",
        mode_reason="",
        desired=DesiredState.RUNNING,
        state=JobState.RUNNING,
        error="",
        attempts=2,
        updated_at=datetime(2026, 1, 1, tzinfo=UTC),
        progress={"lag_records": 7, "lag_seconds": 1.5, "phase": "live", "at": "2026-01-01"},
    )
    stopped = replace(job, job_id="A.0", desired=DesiredState.STOPPED)
    set_jobs([stopped, job])
    (family,) = JOBS.collect()
    told = {(s.labels["job"], s.labels["metric"]): s.value for s in family.samples}
    assert told == {
        ("A.1", "running"): 1.0,
        ("A.1", "starts"): 2.0,
        ("A.1", "lag_records"): 7.0,
        ("A.1", "lag_seconds"): 1.5,
    }
    set_jobs([])
    assert not next(iter(JOBS.collect())).samples
