"""The phases of a job: it reads its history in large batches, and then goes on row by row.

A job in real-time mode has a second way to run, on the same checkpoint: micro-batches up to the end of its topics.
This phase costs a start of the job, so a short backlog isn't worth it; and it answers in seconds, so a job that has
caught up must leave it. The lag decides, by bounds that lie far enough apart that a job doesn't oscillate.
"""

from enum import StrEnum

from caraway.plan.model import JobMode

# The backlog above which a job begins with large batches. The start of a further query takes about a second, in which
# a running one processes some 50,000 rows.
BACKFILL_RECORDS = 100_000
# The backlog up to which a job leaves the large batches: rows that arrive while the second query starts must not send
# it back; at 10,000 events a second this is 2 s.
LEVEL_RECORDS = 20_000
# The backlog above which a running job returns to large batches. It must be stopped for that, and processes again
# the rows since its checkpoint: at most 180 s of its input.
LEFT_BEHIND_RECORDS = 1_000_000


class Phase(StrEnum):
    """The phase of a job: reading a backlog, or running live."""

    BACKFILL = "backfill"
    LIVE = "live"


def phase_at_start(mode: JobMode, lag_records: int, *, unfinished: bool, was: Phase | None) -> Phase:
    """Return the phase in which to start a job.

    Args:
        mode: The job's mode; micro-batch mode reads its history in large batches anyway.
        lag_records: The number of records that wait for the job.
        unfinished: True if the checkpoint contains an unfinished batch. It has an end, and only
            micro-batches run up to an end.
        was: The phase before, if the job isn't just started.
    """
    if mode is JobMode.MICRO_BATCH:
        return Phase.LIVE
    bound = LEVEL_RECORDS if was is Phase.BACKFILL else BACKFILL_RECORDS
    return Phase.BACKFILL if unfinished or lag_records > bound else Phase.LIVE


def is_left_behind(mode: JobMode, phase: Phase, lag_records: int) -> bool:
    """Return whether a running job should stop and catch up in large batches."""
    return mode is JobMode.REAL_TIME and phase is Phase.LIVE and lag_records > LEFT_BEHIND_RECORDS
