"""When a job reads its history in large batches, and when it goes on row by row.

A job in real-time mode has a second way to run, on the same checkpoint: micro-batches up to the end of its topics.
They cost a job start, so a short backlog isn't worth it; and they answer in seconds, so a job that has caught up must
not stay in them. The lag decides, with bounds far enough apart that a job at one of them doesn't go to and fro.
"""

from enum import StrEnum

from caraway.plan.model import JobMode

# To start a query takes about a second, in which one that runs works off some 50,000 rows.
BACKFILL_RECORDS = 100_000
# What comes in while the second query starts must not send the job back: at 10,000 events a second this is 2 s.
LEVEL_RECORDS = 20_000
# A running job has to be stopped for it, and does again what came since its checkpoint: at most 180 s of its input.
LEFT_BEHIND_RECORDS = 1_000_000


class Phase(StrEnum):
    """What a job is about."""

    BACKFILL = "backfill"
    LIVE = "live"


def phase_at_start(mode: JobMode, lag_records: int, *, unfinished: bool, was: Phase | None) -> Phase:
    """Return how to start a job.

    Args:
        mode: Its mode; one in micro-batch mode reads its history in large batches anyway.
        lag_records: How many records it is behind.
        unfinished: Whether its checkpoint has a batch that was begun. Such a batch has an end, real-time mode has none.
        was: What it did before, if it was not just started.
    """
    if mode is JobMode.MICRO_BATCH:
        return Phase.LIVE
    bound = LEVEL_RECORDS if was is Phase.BACKFILL else BACKFILL_RECORDS
    return Phase.BACKFILL if unfinished or lag_records > bound else Phase.LIVE


def is_left_behind(mode: JobMode, phase: Phase, lag_records: int) -> bool:
    """Return whether a running job should stop and catch up in large batches."""
    return mode is JobMode.REAL_TIME and phase is Phase.LIVE and lag_records > LEFT_BEHIND_RECORDS
