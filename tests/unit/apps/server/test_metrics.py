"""Tests of the metrics of jobs and indexes."""

from dataclasses import replace

from caraway.apps.server.metrics import INDEX_LAG_RECORDS, INDEX_LAG_SECONDS, JOBS, set_jobs, set_lags
from caraway.dataplane.index.feeding.lag import IndexLag
from caraway.state.model import DesiredState
from tests.unit.apps.server.reports import job_record
from tests.unit.apps.server.visits import Busy, Hourly, Visits, plan_of


def test_jobs_that_must_run_tell_their_figures() -> None:
    figures = {"lag_records": 7, "lag_seconds": 1.5, "phase": "live", "at": "2026-01-01"}
    job = job_record(plan_of(Visits, Hourly, Busy).jobs[0], job_id="A.1", attempts=2, progress=figures)
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


def test_each_dataset_has_the_greatest_lag_of_its_indexes() -> None:
    lags = [
        IndexLag(dataset="A", asset="1", records=7, seconds=1.5, grown=7),
        IndexLag(dataset="A", asset="2", records=9, seconds=0.5, grown=9),
        IndexLag(dataset="B", asset="3", records=0, seconds=0.0, grown=0),
    ]
    set_lags(lags)
    told = {s.labels["dataset_name"]: s.value for s in next(iter(INDEX_LAG_RECORDS.collect())).samples}
    assert told == {"A": 9.0, "B": 0.0}
    told = {s.labels["dataset_name"]: s.value for s in next(iter(INDEX_LAG_SECONDS.collect())).samples}
    assert told == {"A": 1.5, "B": 0.0}
    set_lags([])
    assert not next(iter(INDEX_LAG_RECORDS.collect())).samples
