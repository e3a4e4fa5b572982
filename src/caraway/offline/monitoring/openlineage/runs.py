"""Runs of jobs: a run begins when an engine has started a job, and ends when the job fails or isn't needed any more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec
from msgspec import Struct

from caraway.state.model import JobRecord, JobState

_ALIVE = frozenset({JobState.STARTING, JobState.RUNNING})


class Turn(StrEnum):
    """The changes of a run; the values are those of OpenLineage."""

    START = "START"
    COMPLETE = "COMPLETE"
    ABORT = "ABORT"
    FAIL = "FAIL"


class Run(Struct, frozen=True, kw_only=True):
    """A run under way.

    Attributes:
        run_id: Its UUID.
        branch: The branch whose pipeline it computes.
        dataset: The dataset of the pipeline.
        pipeline: The name of the pipeline.
        job_id: The job.
        attempts: The number of times that the engine had started the job.
    """

    run_id: str
    branch: str
    dataset: str
    pipeline: str
    job_id: str
    attempts: int


ENCODER, DECODER = msgspec.json.Encoder(), msgspec.json.Decoder(list[Run])
# The branch and the job of a run.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RunChange:
    """A run that has begun or ended."""

    turn: Turn
    run: Run


def changes(
    known: Mapping[Key, Run], needed: Mapping[Key, Run], jobs: Sequence[JobRecord]
) -> tuple[list[RunChange], dict[Key, Run]]:
    """Return what has happened since the last look, in order, and the runs that are under way now.

    Args:
        known: The runs that were under way then.
        needed: A new run for each job that a branch needs, which isn't under way yet.
        jobs: The jobs as engines report them.
    """
    reported = {job.job_id: job for job in jobs}
    found: list[RunChange] = []
    now: dict[Key, Run] = {}
    for key, run in known.items():
        turn = _end(run, reported.get(run.job_id) if key in needed else None)
        if turn is None:
            now[key] = run
        else:
            found.append(RunChange(turn, run))
    for key, run in needed.items():
        job = reported.get(run.job_id)
        if key not in now and job is not None and job.state in _ALIVE:
            now[key] = msgspec.structs.replace(run, attempts=job.attempts)
            found.append(RunChange(Turn.START, now[key]))
    return found, now


def _end(run: Run, job: JobRecord | None) -> Turn | None:
    """Return how a run has ended; None if it is under way. `job` is None if the branch doesn't need it any more."""
    if job is None or job.state is JobState.STOPPED:
        return Turn.COMPLETE
    if job.state is JobState.FAILING:
        return Turn.FAIL
    # An engine counts its starts of a job from 0. So a different number means that the job was started again, or runs
    # in another engine, and that this run is over.
    return None if job.state in _ALIVE and job.attempts == run.attempts else Turn.ABORT
