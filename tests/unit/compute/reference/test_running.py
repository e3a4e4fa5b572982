"""Tests of running aggregates: they are the aggregates of the rows in the window, and cost as much work as rows."""

import math
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caraway.compute.reference.aggregates.functions import Sample, compiled
from caraway.compute.reference.aggregates.running import running, values
from caraway.compute.reference.aggregates.windows import Life
from caraway.compute.reference.engine import LocalEngine
from caraway.compute.reference.operators.joins import pieces
from caraway.compute.reference.tables import Version
from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING, DataType, DecimalType, optional
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.operators import Aggregate, Join, JoinKind
from tests.unit.compute.reference.building import (
    EVENTS,
    FOREVER,
    S,
    aggregate,
    dataset,
    derived,
    events,
    hopping,
    last,
    row,
    spec_of,
)

F = AggregateFunction
TYPES: dict[str, DataType] = {"i": INT, "f": optional(FLOAT), "d": optional(DecimalType(2)), "s": optional(STRING)}
SOURCE = dataset("Source", {**TYPES, "t": DATETIME})
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1),
    "f": st.none()
    | st.floats()
    | st.sampled_from([0.0, -0.0, 5e-324, 1e300, 1.7976931348623157e308, math.inf, -math.inf, math.nan]),
    "d": st.none() | st.decimals(-1000, 1000, places=2).map(lambda number: f"{number:.2f}"),
    "s": st.none() | st.sampled_from(["", "a", "b", "c"]),
}
NUMERIC = (F.SUM, F.AVERAGE, F.STDDEV, F.VARIANCE, F.MIN, F.MAX, F.QUANTILE, F.EXP_DECAY_SUM)
LISTS = (F.FIRST_K, F.LAST_K)
# Everything but the decayed sum, whose terms differ from read to read.
FOLLOWED = [function for function in F if function is not F.EXP_DECAY_SUM]


@st.composite
def aggregates(draw: st.DrawFn) -> AggregateSpec:
    function = draw(st.sampled_from(list(F)))
    columns = ["i", "f", "d"] if function in NUMERIC else ["i", "s"] if function is F.DISTINCT else ["i", "d", "s"]
    of = draw(st.sampled_from(columns))
    # A column without nulls has none to drop.
    dropnull = of != "i" and draw(st.booleans())
    parameters: dict[str, Any] = {"p": draw(st.floats(0, 1)), "half_life_us": 3 * S}
    if function is F.COUNT:
        parameters |= {"unique": draw(st.booleans()), "dropnull": dropnull}
    if function in LISTS:
        parameters |= {"limit": draw(st.integers(1, 3)), "dedup": draw(st.booleans()), "dropnull": dropnull}
    if function is F.DISTINCT:
        parameters["dropnull"] = dropnull
    return spec_of(function, of, source=SOURCE, **parameters)


@st.composite
def histories(draw: st.DrawFn) -> tuple[AggregateSpec, list[tuple[Life, Sample]], list[int]]:
    """Draw an aggregate, the lives of rows in any order of entering and leaving, and times of reads, which ascend."""
    spec = draw(aggregates())
    samples = []
    for time_us in sorted(draw(st.lists(st.integers(0, 8 * S), max_size=10))):
        enter_us = time_us + draw(st.integers(0, 3)) * S
        leave_us = draw(st.none() | st.integers(enter_us + 1, enter_us + 4 * S))
        samples.append((Life(enter_us, leave_us), Sample(time_us, draw(VALUES[spec.of or "i"]))))
    moments = [moment for life, _ in samples for moment in life if moment is not None]
    times = draw(st.lists(st.sampled_from(moments) if moments else st.integers(0, 9 * S), min_size=1, max_size=20))
    return spec, samples, sorted(times)


def bits(value: object) -> str:
    """Return a value with the sign of its zero, and every NaN as one."""
    return repr(value)


# A value leaves of which only the exact sum of squares still knows; a NaN leaves, and a negative zero is left.
TINY = [(Life(0, 2), Sample(0, 1e300)), (Life(1, None), Sample(1, 5e-324))]
NAN = [(Life(0, 1), Sample(0, math.nan)), (Life(0, None), Sample(0, -0.0))]


@given(histories())
@example((spec_of(F.STDDEV, "f", source=SOURCE), TINY, [1, 2]))
@example((spec_of(F.SUM, "f", source=SOURCE), NAN, [0, 1]))
def test_a_running_aggregate_is_that_of_the_rows_in_the_window_to_the_bit(
    drawn: tuple[AggregateSpec, list[tuple[Life, Sample]], list[int]],
) -> None:
    spec, samples, times = drawn
    dtype = TYPES[spec.of or "i"]
    compute = compiled(spec, dtype)
    with warnings.catch_warnings():
        # A sum that doesn't fit is null in both.
        warnings.simplefilter("ignore", RuntimeWarning)
        found = list(values(samples, running(spec, dtype)(), times))
        expected = [compute([sample for life, sample in samples if life.holds(at_us)], at_us) for at_us in times]
    assert list(map(bits, found)) == list(map(bits, expected))


def work(action: Callable[[], object]) -> int:
    """Return how many instructions of Python an action takes, which no other program on the machine changes."""
    count = 0

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def grows_with_rows(make: Callable[[int], Callable[[], object]]) -> bool:
    """Return whether four times the rows take less than six times the work; sixteen times would be quadratic."""
    few, many = work(make(60)), work(make(240))
    return many < 6 * few


def all_functions(window: Any) -> Aggregate:
    specs = [
        spec_of(
            function,
            "x",
            window=window,
            into=function.name,
            p=0.5 if function is F.QUANTILE else None,
            limit=3 if function in LISTS else None,
            dedup=function in LISTS,
        )
        for function in FOLLOWED
        # The list of all distinct values is itself as long as the rows.
        if function is not F.DISTINCT
    ]
    return aggregate(*specs)


def logged(number: int) -> list[dict[str, Any]]:
    return [row("a", position % 7, 2 * position) for position in range(number)]


@pytest.mark.parametrize("window", [FOREVER, last(100), hopping(100, 10), hopping(None, 10)], ids=str)
def test_reads_of_a_key_take_work_in_proportion_to_its_rows(window: Any) -> None:
    def make(number: int) -> Callable[[], object]:
        engine = LocalEngine([EVENTS, derived(all_functions(window))])
        rows = logged(number)
        # Reads come in no order of time.
        times = [rows[position * 7 % number]["t"] for position in range(number)]

        def reads() -> None:
            engine.append("Events", rows)
            engine.lookup("Out", [("a",)] * number, times, ["SUM"])
            engine.rows("Out")

        return reads

    assert grows_with_rows(make)


def test_events_join_an_aggregate_of_a_key_in_work_in_proportion_to_its_rows() -> None:
    counts = derived(aggregate(spec_of(F.COUNT, into="n")), name="Counts")
    joined = Join(
        left=events,
        right="Counts",
        how=JoinKind.INNER,
        left_on=("k",),
        right_on=("k",),
        within_low_us=None,
        within_high_us=0,
        fields=("n",),
    )
    engine_of = LocalEngine([EVENTS, counts, derived(joined, sources=(EVENTS, counts))])

    def make(number: int) -> Callable[[], object]:
        engine = engine_of.copy()
        return lambda: engine.append("Events", logged(number))

    assert grows_with_rows(make)


def test_two_tables_of_a_key_are_joined_in_work_in_proportion_to_their_versions() -> None:
    def make(number: int) -> Callable[[], object]:
        rights = [Version({"at": at}, at, at + 3) for at in range(0, 3 * number, 3)]
        lefts = [Version({}, at, at + 3) for at in range(1, 3 * number, 3)]
        return lambda: [list(pieces(left, rights)) for left in lefts]

    assert grows_with_rows(make)
