"""Aggregates computed from intervals are those of the in-process engine, to the bit."""

import math
import struct
import warnings
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.reference.aggregates.functions import Sample, compiled
from caraway.expr.polars.values import from_polars, to_polars
from caraway.graph.windows import ContinuousWindow
from caraway.offline.history.inputs import AggregateInputs
from caraway.offline.history.windows import WindowHistory, is_computable
from tests.unit.dataplane.index.oracle import COLUMNS, SECOND, Case, case, every_function

WINDOWS = [ContinuousWindow(length_us=None), ContinuousWindow(length_us=3 * SECOND), ContinuousWindow(length_us=90)]


def computable() -> Case:
    """Return a case with all functions that can be computed from intervals, over several windows."""
    made = case("intervals", WINDOWS)
    specs = tuple(spec for spec in made.operator.aggregates if is_computable(made.plan, spec) and spec.of != "t")
    operator = type(made.operator)(of=made.operator.of, keys=made.operator.keys, aggregates=specs)
    return Case("intervals", operator, keyed=False)


CASE = computable()
NUMBERS = st.none() | st.integers(-5, 5) | st.sampled_from([2**63 - 1, -(2**63)])
FLOATS = st.none() | st.sampled_from([0.0, -0.0, 0.1, -2.5, 1e300, 5e-324, math.nan, math.inf, -math.inf]) | st.floats()
DECIMALS = st.none() | st.integers(-10_000, 10_000).map(lambda cents: f"{cents / 100:.2f}")
ROWS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(-10, 10).map(lambda half: half * SECOND // 2) | st.integers(-200, 200),
        NUMBERS,
        FLOATS,
        DECIMALS,
        st.none() | st.sampled_from("ab"),
    ),
    max_size=25,
)
ASKED = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-12 * SECOND, 12 * SECOND) | st.integers(-300, 300)), max_size=8
)


def bits(value: object) -> object:
    """Return a value with the bits of a float, in which all NaN are equal."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value)
    return value


def expected(rows: list[tuple[Any, ...]], group: int, at_us: int) -> list[object]:
    """Return the aggregates of a group at a time, as the in-process engine computes them."""
    values = []
    for spec in CASE.plan.aggregates:
        length_us = spec.window_us
        position = {"n": 2, "x": 3, "d": 4, "s": 5}.get(spec.of or "")
        samples = [
            Sample(row[1], None if position is None else row[position])
            for row in rows
            if row[0] == group and row[1] <= at_us and (length_us is None or row[1] > at_us - length_us - SECOND)
        ]
        dtype = None if spec.of is None else COLUMNS[spec.of]
        values.append(compiled(spec, dtype)(samples, at_us))
    return values


@given(ROWS, ASKED)
def test_aggregates_of_windows_have_the_bits_of_the_in_process_engine(
    rows: list[tuple[Any, ...]], asked: list[tuple[int, int]]
) -> None:
    rows = sorted(rows, key=lambda row: row[:2])
    groups, times = (np.array([row[side] for row in rows], np.int64) for side in (0, 1))
    by_name = {"n": 2, "x": 3, "d": 4, "s": 5}
    columns = {
        name: (COLUMNS[name], to_polars(name, [row[position] for row in rows], COLUMNS[name]))
        for name, position in by_name.items()
    }
    history = WindowHistory(CASE.plan, AggregateInputs(groups, 4, times, None, None, columns))
    names = [spec.into for spec in CASE.plan.aggregates]
    asked_groups, at_us = (np.array([pair[side] for pair in asked], np.int64) for side in (0, 1))
    series, found = history.read(names, asked_groups, at_us)
    values = [from_polars(column, history.dtype(name)) for name, column in zip(names, series, strict=True)]
    for number, (group, time_us) in enumerate(asked):
        there = any(row[0] == group and row[1] <= time_us for row in rows)
        assert found[number] == there
        if there:
            with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
                wanted = expected(rows, group, time_us)
            assert [bits(column[number]) for column in values] == [bits(value) for value in wanted]
        else:
            unseen = [spec.default if spec.default == -1.0 else None for spec in CASE.plan.aggregates]
            assert [column[number] for column in values] == unseen


def test_all_functions_of_numbers_take_part() -> None:
    functions = {spec.function for spec in CASE.plan.aggregates}
    assert functions == {"count", "sum", "average", "stddev", "variance", "min", "max"}
    assert len(CASE.plan.aggregates) == 3 * 21


def test_functions_of_values_are_not_computed_from_intervals() -> None:
    plan = case("all", WINDOWS).plan
    assert len(every_function(WINDOWS[0], CASE.source, "w")) * 3 == len(plan.aggregates)
    left = {spec.function for spec in plan.aggregates if not is_computable(plan, spec)}
    assert {"distinct", "quantile", "last_k"} <= left
