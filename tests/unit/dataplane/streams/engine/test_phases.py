"""The phases of a job: when it reads its history in batches, and when it goes on row by row."""

from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.dataplane.streams.engine.phases import (
    BACKFILL_RECORDS,
    LEFT_BEHIND_RECORDS,
    LEVEL_RECORDS,
    Phase,
    is_left_behind,
    phase_at_start,
)
from caraway.graph.plan.model import JobMode
from tests.effort import examples

lags = st.integers(0, 3 * LEFT_BEHIND_RECORDS)


def test_a_long_history_is_read_in_batches_until_the_job_is_nearly_caught_up() -> None:
    def start(lag: int, was: Phase | None) -> Phase:
        return phase_at_start(JobMode.REAL_TIME, lag, unfinished=False, was=was)

    assert start(0, None) is Phase.LIVE
    assert start(BACKFILL_RECORDS, None) is Phase.LIVE
    assert start(BACKFILL_RECORDS + 1, None) is Phase.BACKFILL
    assert start(BACKFILL_RECORDS, Phase.BACKFILL) is Phase.BACKFILL
    assert start(LEVEL_RECORDS, Phase.BACKFILL) is Phase.LIVE


def test_a_batch_that_was_begun_is_finished_first() -> None:
    assert phase_at_start(JobMode.REAL_TIME, 0, unfinished=True, was=None) is Phase.BACKFILL


@given(lag=lags, unfinished=st.booleans(), was=st.sampled_from([None, *Phase]))
@settings(max_examples=examples(100))
def test_a_job_with_python_functions_just_goes_on(*, lag: int, unfinished: bool, was: Phase | None) -> None:
    assert phase_at_start(JobMode.MICRO_BATCH, lag, unfinished=unfinished, was=was) is Phase.LIVE
    assert not is_left_behind(JobMode.MICRO_BATCH, Phase.LIVE, lag)


@given(lags)
@settings(max_examples=examples(100))
def test_no_lag_sends_a_job_to_and_fro(lag: int) -> None:
    level = phase_at_start(JobMode.REAL_TIME, lag, unfinished=False, was=Phase.BACKFILL) is Phase.LIVE
    assert not (level and is_left_behind(JobMode.REAL_TIME, Phase.LIVE, lag))
    left = is_left_behind(JobMode.REAL_TIME, Phase.LIVE, lag)
    again = phase_at_start(JobMode.REAL_TIME, lag, unfinished=False, was=Phase.LIVE)
    assert not left or again is Phase.BACKFILL
