"""Tests of the metrics of jobs."""

from dataclasses import replace
from datetime import UTC, datetime

from caraway.server.metrics import JOBS, set_jobs
from caraway.state.model import DesiredState, JobRecord, JobState


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
