"""The phases of a job: it reads its history in large batches, and then goes on row by row.

A job in real-time mode has two ways to run on its checkpoint. Micro-batches up to the end of its topics read a backlog
faster, but a row takes seconds through them, so a job that has caught up must leave them. Each change of the phase is a
start of the job, so a short backlog isn't worth it. The number of waiting records decides, by bounds that lie far
enough apart that a job doesn't oscillate.
"""

from enum import StrEnum

from caraway.graph.plan.model import JobMode

# Above this backlog, in records, a job begins with large batches. After these batches a second query must be started,
# which takes about a second; in that time a running query processes some 50,000 rows.
BACKFILL_RECORDS = 100_000
# Up to this backlog, in records, a job changes from large batches to its live query. Rows that arrive while the live
# query starts must not send the job back: at 10,000 events a second, this backlog arrives in 2 s.
LEVEL_RECORDS = 20_000
# Above this backlog, in records, a live job returns to large batches. The change stops the job, so it processes the
# rows since its last checkpoint again: those of some minutes at most (spark.checkpoint_interval_seconds), which may be
# millions. Indexes then read the results of these rows again. A live job that isn't stopped catches up with a million
# rows in half a minute.
LEFT_BEHIND_RECORDS = 5_000_000


class Phase(StrEnum):
    """The phase of a job: reading what its topics don't have any more, reading a backlog, or running live."""

    ARCHIVE = "archive"
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
    bound = BACKFILL_RECORDS if was in {None, Phase.LIVE} else LEVEL_RECORDS
    return Phase.BACKFILL if unfinished or lag_records > bound else Phase.LIVE


def is_left_behind(mode: JobMode, phase: Phase, lag_records: int) -> bool:
    """Return whether a running job should stop and catch up in large batches."""
    return mode is JobMode.REAL_TIME and phase is Phase.LIVE and lag_records > LEFT_BEHIND_RECORDS
