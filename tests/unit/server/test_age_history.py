"""The law of the history of ages: each minute has the greatest age that was noted in it, for as long as it is kept."""

from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.server.freshness.history import MINUTES, NOTED_S, AgeHistory
from tests.effort import examples

STEPS = st.lists(st.tuples(st.integers(0, 400), st.floats(0, 1e5)), max_size=60)


@given(STEPS, STEPS)
@settings(max_examples=examples(200))
def test_each_minute_has_its_greatest_age(one: list[tuple[int, float]], other: list[tuple[int, float]]) -> None:
    history, wall = AgeHistory(), 1.7e9
    expected: dict[float, float] = {}
    for (step, first), (_, second) in zip(one, other, strict=False):
        wall += step
        history.note(wall, wall, {"one": first, "other": second})
        minute = wall // 60 * 60
        expected[minute] = max(expected.get(minute, 0.0), first, second)
    assert dict(history.of(["one", "other"])) == expected
    assert history.of(["nothing"]) == []


def test_old_minutes_and_indexes_that_are_gone_are_forgotten() -> None:
    history = AgeHistory()
    for minute in range(3 * MINUTES):
        history.note(minute * 60.0, minute * 60.0, {"a": float(minute), "b": 1.0})
    found = history.of(["a"])
    assert len(found) == MINUTES
    assert found[-1] == ((3 * MINUTES - 1) * 60.0, 3 * MINUTES - 1.0)
    history.note(1e6, 1e6, {"a": 1.0})
    assert history.of(["b"]) == []


def test_a_clock_that_is_set_back_changes_the_newest_minute_only() -> None:
    history = AgeHistory()
    history.note(0.0, 600.0, {"a": 1.0})
    history.note(5.0, 60.0, {"a": 3.0})
    assert history.of(["a"]) == [(600.0, 3.0)]


def test_ages_are_noted_every_few_seconds() -> None:
    history = AgeHistory()
    assert history.is_due(0.0)
    history.note(0.0, 0.0, {})
    assert not history.is_due(NOTED_S - 0.1)
    assert history.is_due(NOTED_S)
