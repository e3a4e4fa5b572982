"""The extremes of intervals, and the places of times, are those that a search of all rows finds."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.offline.kernel.extremes import Extremes
from caraway.offline.kernel.timeline import Timeline

FLOATS = st.floats(allow_nan=False)
INTS = st.integers(-(2**63), 2**63 - 1)


@given(
    st.lists(FLOATS, max_size=600) | st.lists(INTS, min_size=1, max_size=600),
    st.lists(st.tuples(st.integers(0, 600), st.integers(0, 600)), max_size=20),
    st.booleans(),
)
def test_an_interval_has_the_extreme_of_its_values(
    values: list[Any], ends: list[tuple[int, int]], greatest: bool
) -> None:
    kind: Any = np.int64 if values and isinstance(values[0], int) else np.float64
    intervals = [(min(begin, len(values)), min(end, len(values))) for begin, end in ends]
    first, last = (np.array([interval[side] for interval in intervals], np.int64) for side in (0, 1))
    found = Extremes(np.array(values, kind), greatest=greatest).between(first, last)
    for (begin, end), value in zip(intervals, found.tolist(), strict=True):
        if begin < end:
            assert value == (max if greatest else min)(values[begin:end])


@pytest.mark.parametrize("greatest", [False, True])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 64, 65, 512, 513])
def test_every_interval_of_a_column(size: int, greatest: bool) -> None:
    values = np.array([(number * 7919) % 101 for number in range(size)], np.int64)
    first, last = (side.ravel() for side in np.meshgrid(np.arange(size), np.arange(1, size + 1)))
    first, last = first[first < last], last[first < last]
    chosen = slice(None, None, max(1, len(first) // 5000))
    found = Extremes(values, greatest=greatest).between(first[chosen], last[chosen])
    pick: Any = max if greatest else min
    expected = [pick(values[a:b].tolist()) for a, b in zip(first[chosen], last[chosen], strict=True)]
    assert found.tolist() == expected


ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(-5, 5)), max_size=40)


@given(ROWS, st.lists(st.tuples(st.integers(0, 4), st.integers(-7, 7)), max_size=20))
def test_a_time_stands_behind_all_rows_of_its_group_up_to_it(
    rows: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    rows = sorted(rows)
    groups, times = (np.array([row[side] for row in rows], np.int64) for side in (0, 1))
    asked_groups, asked_times = (np.array([pair[side] for pair in asked], np.int64) for side in (0, 1))
    found = Timeline(groups, times, 5).up_to(asked_groups, asked_times).tolist()
    assert found == [sum(row <= pair for row in rows) for pair in asked]
