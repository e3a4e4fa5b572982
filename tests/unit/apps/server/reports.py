"""Reports of indexes and jobs about themselves, for tests that look at a few of the figures only."""

from datetime import UTC, datetime
from typing import Any

from caraway.dataplane.index.feeding.worker import IndexStatus
from caraway.graph.plan.model import IndexPlan, JobPlan
from caraway.state.model import DesiredState, JobRecord, JobState


def index_status(index: IndexPlan | None = None, **more: Any) -> IndexStatus:
    """Return the status of an index that has nothing to do."""
    names = {"dataset": "", "topic": "", "asset": ""}
    if index is not None:
        names = {"dataset": index.dataset, "topic": index.topic, "asset": index.asset.hex()}
    idle = {"following": True, "offsets": {0: 0}, "lag": 0, "newest_ingested_us": 0}
    counts = dict.fromkeys(("written", "unchanged", "refused", "emitted"), 0)
    values: dict[str, Any] = {**names, **idle, **counts, **more}
    return IndexStatus(**values)


def job_record(job: JobPlan, **more: Any) -> JobRecord:
    """Return the record of a job that runs."""
    values: dict[str, Any] = {
        "job_id": job.job_id,
        "commit_id": "a" * 32,
        "dataset": job.dataset,
        "pipeline": job.pipeline,
        "mode": job.mode.value,
        "mode_reason": job.mode_reason,
        "desired": DesiredState.RUNNING,
        "state": JobState.RUNNING,
        "error": "",
        "attempts": 1,
        "updated_at": datetime.now(UTC),
        "progress": {},
    }
    return JobRecord(**{**values, **more})
