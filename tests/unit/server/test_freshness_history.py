"""The ages of the last day: the greatest of each minute, for indexes that are there."""

from hypothesis import given
from hypothesis import strategies as st

from caraway.server.freshness.history import KEPT, STEP_S, AgeHistory


@given(st.lists(st.tuples(st.integers(0, 600), st.floats(0, 1e6)), max_size=60))
def test_each_minute_has_its_greatest_age(noted: list[tuple[int, float]]) -> None:
    history, clock = AgeHistory(), 1_000_000.0
    expected: dict[int, float] = {}
    for passed, seconds in noted:
        clock += passed
        minute = int(clock // STEP_S) * STEP_S
        expected[minute] = max(expected.get(minute, 0.0), seconds)
        history.note(clock, {"a": seconds})
    assert history.of("a") == sorted(expected.items())


def test_a_day_is_kept_and_what_is_gone_is_forgotten() -> None:
    history = AgeHistory()
    for minute in range(2 * KEPT):
        history.note(minute * STEP_S, {"a": float(minute), "b": 1.0})
    assert [at for at, _ in history.of("a")] == [minute * STEP_S for minute in range(KEPT, 2 * KEPT)]
    history.note(2 * KEPT * STEP_S, {"a": 1.0})
    assert (len(history.of("a")), history.of("b")) == (KEPT, [])
    # A clock that is set back adds to the newest minute.
    history.note(0, {"a": 7.0})
    assert history.of("a")[-1] == (2 * KEPT * STEP_S, 7.0)
