"""The lives of rows in windows, in columns: those of the in-process engine, one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.reference.aggregates.windows import Life, life
from caraway.compute.why.windows import NEVER, bounds, lives
from caraway.graph.windows import ContinuousWindow, HoppingWindow

SECOND = 1_000_000
LENGTHS = st.one_of(st.none(), st.integers(1, 9).map(lambda seconds: seconds * SECOND))
WINDOWS = st.one_of(
    st.builds(ContinuousWindow, length_us=LENGTHS),
    st.builds(
        HoppingWindow,
        length_us=LENGTHS,
        stride_us=st.integers(1, 5).map(lambda seconds: seconds * SECOND),
        lookback_us=st.sampled_from([0, SECOND, 3 * SECOND]),
    ),
)
# Times at the edges of seconds, and beside them.
TIMES = st.builds(lambda seconds, more: seconds * SECOND + more, st.integers(0, 20), st.sampled_from([0, 1, 999_999]))
ROWS = st.lists(st.tuples(TIMES, st.none() | TIMES), min_size=1, max_size=8)


@given(window=WINDOWS, rows=ROWS, greatest=TIMES, at=TIMES)
def test_lives_are_those_of_the_engine(
    window: ContinuousWindow | HoppingWindow, rows: list[tuple[int, int | None]], greatest: int, at: int
) -> None:
    times = np.array([time for time, _ in rows])
    ends = np.array([NEVER if end is None else end for _, end in rows])
    found = lives(window, times, ends, greatest)
    expected = [life(window, time, end, greatest) for time, end in rows]
    assert found.ever.tolist() == [lived is not None for lived in expected]
    assert found.at(at).tolist() == [lived is not None and lived.holds(at) for lived in expected]
    for place, lived in enumerate(expected):
        if lived is not None:
            leaves = int(found.leaves[place])
            assert Life(int(found.enters[place]), None if leaves == NEVER else leaves) == lived


@given(window=WINDOWS, time=TIMES, greatest=TIMES, at=TIMES)
def test_the_edges_let_in_exactly_the_rows_that_count(
    window: ContinuousWindow | HoppingWindow, time: int, greatest: int, at: int
) -> None:
    """A row that nothing ends counts exactly if its event time is within the edges that an explanation shows."""
    begin, end = bounds(window, at, greatest)
    lived = life(window, time, None, greatest)
    assert (lived is not None and lived.holds(at)) == ((begin is None or begin <= time) and time < end)
