"""The history of figures: the greatest value of each minute, for figures that are noted."""

from hypothesis import given
from hypothesis import strategies as st

from caraway.apps.server.history import KEPT, STEP_S, History


@given(st.lists(st.tuples(st.integers(0, 600), st.floats(0, 1e6)), max_size=60))
def test_each_minute_has_its_greatest_age(noted: list[tuple[int, float]]) -> None:
    history, clock = History(), 1_000_000.0
    expected: dict[int, float] = {}
    for passed, seconds in noted:
        clock += passed
        minute = int(clock // STEP_S) * STEP_S
        expected[minute] = max(expected.get(minute, 0.0), seconds)
        history.note(clock, {"a": seconds})
    assert history.of("a") == sorted(expected.items())


def test_a_day_is_kept_and_what_is_gone_is_forgotten() -> None:
    history = History()
    for minute in range(2 * KEPT):
        history.note(minute * STEP_S, {"a": float(minute), "b": 1.0})
    assert [at for at, _ in history.of("a")] == [minute * STEP_S for minute in range(KEPT, 2 * KEPT)]
    history.note(2 * KEPT * STEP_S, {"a": 1.0})
    assert (len(history.of("a")), len(history.of("b"))) == (KEPT, KEPT)
    history.note((3 * KEPT - 1) * STEP_S, {"a": 1.0})
    assert (len(history.of("a")), history.of("b")) == (KEPT, [])
    # A clock that is set back adds to the newest minute.
    history.note(0, {"a": 7.0})
    assert history.of("a")[-1] == ((3 * KEPT - 1) * STEP_S, 7.0)


def test_only_so_many_figures_are_kept() -> None:
    history = History(kept=2, most=2)
    for minute in range(3):
        history.note(minute * STEP_S, {"a": 1.0, "b": 2.0, "c": 3.0})
    assert [len(history.of(name)) for name in "abc"] == [2, 2, 0]
    # A figure that wasn't noted for as long as is kept makes room.
    history.note(4 * STEP_S, {"a": 1.0})
    history.note(5 * STEP_S, {"a": 1.0, "c": 3.0})
    assert [len(history.of(name)) for name in "abc"] == [2, 0, 1]
