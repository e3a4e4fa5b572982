"""The lag of an index in seconds, and the growth of its backlog."""

from dataclasses import replace

from caraway.dataplane.index.feeding.lag import IndexLag, IndexLags
from caraway.dataplane.index.feeding.worker import IndexStatus

STATUS = IndexStatus(
    dataset="Counts",
    topic="t",
    asset="aa",
    following=True,
    offsets={0: 0},
    lag=0,
    written=0,
    unchanged=0,
    refused=0,
    newest_ingested_us=0,
    emitted=0,
)


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def look(lags: IndexLags, clock: Clock, *, lag: int | None, newest: float = 0.0, written: int = 0) -> IndexLag | None:
    clock.now += 1.0
    status = replace(STATUS, lag=lag, newest_ingested_us=int(newest * 1e6), written=written)
    found = lags.look([status])
    return found[0] if found else None


def test_a_backlog_is_as_old_as_the_newest_applied_record() -> None:
    clock = Clock()
    lags = IndexLags(clock)
    found = look(lags, clock, lag=50, newest=clock.now - 599, written=7)
    assert found == IndexLag(dataset="Counts", asset="aa", records=50, seconds=600.0, grown=0)


def test_an_index_that_has_caught_up_is_no_seconds_behind() -> None:
    clock = Clock()
    lags = IndexLags(clock)
    found = look(lags, clock, lag=0, newest=clock.now - 3600)
    assert found is not None
    assert (found.records, found.seconds) == (0, 0.0)


def test_the_first_records_after_an_idle_hour_are_not_an_hour_old() -> None:
    clock = Clock()
    lags = IndexLags(clock)
    look(lags, clock, lag=0, newest=clock.now - 3600)
    for seconds in (1.0, 2.0, 3.0):
        found = look(lags, clock, lag=100_000, newest=clock.now - 3600)
        assert found is not None
        assert (found.seconds, found.grown) == (seconds, 100_000)


def test_an_index_without_an_applied_record_ages_from_the_first_look() -> None:
    clock = Clock()
    lags = IndexLags(clock)
    ages = [look(lags, clock, lag=10) for _ in range(3)]
    assert [age.seconds for age in ages if age is not None] == [0.0, 1.0, 2.0]


def test_a_lag_that_is_not_known_yet_is_left_out() -> None:
    clock = Clock()
    assert look(IndexLags(clock), clock, lag=None) is None


def test_a_backlog_of_history_that_shrinks_has_not_grown() -> None:
    clock = Clock()
    lags = IndexLags(clock)
    grown = [
        found.grown
        for waiting in (9_000_000, 8_000_000, 8_000_100, 7_000_000, 0, 5)
        if (found := look(lags, clock, lag=waiting)) is not None
    ]
    assert grown == [0, 0, 100, 0, 0, 5]


def test_a_lag_that_is_unknown_for_a_moment_forgets_no_earlier_look() -> None:
    clock = Clock()
    lags = IndexLags(clock)
    look(lags, clock, lag=0)
    assert look(lags, clock, lag=None) is None
    found = look(lags, clock, lag=100_000)
    assert found is not None
    assert (found.seconds, found.grown) == (2.0, 100_000)


def test_an_index_that_is_built_anew_begins_anew() -> None:
    clock = Clock()
    lags = IndexLags(clock)
    look(lags, clock, lag=0, newest=clock.now, written=9_000_000)
    found = look(lags, clock, lag=9_000_000, written=0)
    assert found is not None
    assert (found.seconds, found.grown) == (0.0, 0)
