"""Tests of windows that close by the clock, in the in-process engine: the clock is a row of no group at each moment."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.reference.engine import LocalEngine
from caraway.dtypes.types import INT
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.operators import Aggregate, Input
from caraway.graph.windows import HoppingWindow
from tests.unit.compute.reference.building import (
    FOREVER,
    SOURCES,
    S,
    aggregate,
    derived,
    engine_of,
    hopping,
    row,
    seconds,
    spec_of,
    value_at,
)

F = AggregateFunction
QUARTERS = st.integers(0, 160).map(lambda n: n / 4)
EVENTS = st.lists(st.builds(row, st.sampled_from("ab"), st.integers(0, 5), QUARTERS), min_size=1, max_size=6)
WINDOWS = st.sampled_from([hopping(10, 10), hopping(7, 3), hopping(None, 4), hopping(10, 5, 6)])


class Clock:
    def __init__(self) -> None:
        self.now = -(10**12)

    def __call__(self) -> int:
        return self.now


def counted(window: HoppingWindow, *, as_key: bool, by_clock: bool) -> Aggregate:
    own = None if as_key else window
    specs = [spec_of(F.COUNT, None, own, into="n"), spec_of(F.LAST_K, "x", own, into="l", limit=3)]
    return aggregate(*specs, window=window if as_key else None, by_clock=by_clock)


def shown(engine: LocalEngine, name: str = "Out") -> list[dict[str, Any]]:
    return [found for found in engine.rows(name) if found["k"] != "z"]


@given(EVENTS, WINDOWS, st.booleans(), st.lists(QUARTERS, min_size=1, max_size=4).map(sorted))
def test_the_clock_is_a_row_of_no_group_at_each_moment(
    rows: list[dict[str, Any]], window: HoppingWindow, as_key: bool, moments: list[float]
) -> None:
    as_key = as_key and window.length_us is not None
    clock = Clock()
    engine = LocalEngine([*SOURCES, derived(counted(window, as_key=as_key, by_clock=True))], clock=clock)
    for number, moment in enumerate(moments):
        # Some rows come between the moments, and are late as they would be by event time.
        engine.append("Events", rows[number :: len(moments)])
        clock.now = round(moment * S)
        known = [each for n in range(number + 1) for each in rows[n :: len(moments)]]
        by_event_time = counted(window, as_key=as_key, by_clock=False)
        wanted = engine_of(by_event_time, Events=[*known, row("z", 0, moment)])
        assert shown(engine) == shown(wanted)
        assert shown(engine.copy()) == shown(wanted)
        if not as_key:
            asked = [(key, at * S) for key in "ab" for at in range(0, 60, 7)]
            keys, times = [(key,) for key, _ in asked], [at for _, at in asked]
            assert engine.lookup("Out", keys, times, ["n", "l"]) == wanted.lookup("Out", keys, times, ["n", "l"])


# The windows end at 10 s and 20 s, and are held back by 5 s.
STEPS = [(9, []), (12, []), (14.999999, []), (15, [(2, 10)]), (24.999999, [(2, 10)]), (25, [(2, 10), (2, 20)])]


@pytest.mark.parametrize("first", range(3))
def test_what_follows_is_computed_when_a_window_closes(first: int) -> None:
    clock = Clock()
    made = derived(counted(hopping(10, 10, 5), as_key=True, by_clock=True))
    total = AggregateSpec(function=F.SUM, into="all", of="n", window=FOREVER, default=None, dtype=INT)
    after = derived(aggregate(total, of=Input(dataset="Out"), keys=["k"], along=None), "After", [*SOURCES, made])
    engine = LocalEngine([*SOURCES, made, after], clock=clock)
    engine.append("Events", [row("a", 1, 3), row("a", 2, 4)])
    for now, expected in STEPS[first:]:
        clock.now = round(now * S)
        assert seconds(engine.rows("After"), "all") == expected, now


def test_rows_that_were_put_stay_when_a_window_closes() -> None:
    clock = Clock()
    engine = LocalEngine([*SOURCES, derived(counted(hopping(10, 10), as_key=False, by_clock=True))], clock=clock)
    engine.append("Events", [row("a", 1, 3)])
    engine.put_derived("Out", [{"k": "a", "n": 9, "l": [], "t": 5 * S}])
    clock.now = 30 * S
    assert value_at(engine, ("a",), 30, "n") == (9,)


@pytest.mark.parametrize("moment", [0, 12])
def test_rows_before_the_epoch_close_windows_only_up_to_their_own_time(moment: int) -> None:
    engine = engine_of(counted(hopping(10, 10), as_key=False, by_clock=False), Events=[row("a", 1, moment - 33)])
    assert engine.rows("Out") == []
