"""Counts by windows: batches add up to their rows, and the status follows from them."""

from datetime import UTC, datetime

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.expectations.counts import DAY_US, HOUR_US, WINDOW_US, Counts, added, by_window
from caraway.compute.expectations.report import Status, states
from caraway.compute.expectations.suite import Checked, CheckInfo

ROWS = st.lists(st.tuples(st.integers(-3 * WINDOW_US, 3 * WINDOW_US), st.booleans(), st.booleans()), max_size=20)
CHECK = CheckInfo("expect:x", ("x",), 0.5)


def counted(rows: list[tuple[int, bool, bool]]) -> dict[tuple[int, int], Counts]:
    evaluated = np.array([one[1] for one in rows], np.bool_)
    failed = np.array([one[2] for one in rows], np.bool_) & evaluated
    return by_window([Checked(evaluated, failed)], np.array([one[0] for one in rows], np.int64))


@given(ROWS, st.integers(0, 20))
def test_batches_add_up_to_their_rows(rows: list[tuple[int, bool, bool]], cut: int) -> None:
    whole: dict[tuple[int, int], Counts] = {}
    for time_us, evaluated, failed in rows:
        key = 0, time_us // WINDOW_US * WINDOW_US
        if evaluated:
            whole[key] = whole.get(key, Counts()) + Counts(1, int(failed))
    assert counted(rows) == whole
    assert added([counted(rows[:cut]), counted(rows[cut:])]) == whole


def status(counts: dict[int, Counts]) -> Status:
    (state,) = states("D", 1, [CHECK], {(0, start): found for start, found in counts.items()})
    return state.status


def test_the_last_hour_that_has_rows_says_whether_they_are_as_expected() -> None:
    assert status({}) is Status.NO_DATA
    assert status({0: Counts(2, 1)}) is Status.OK
    assert status({0: Counts(3, 2)}) is Status.VIOLATED
    # Rows that come late don't belong to the last hour.
    assert status({0: Counts(10, 10), HOUR_US: Counts(1, 0)}) is Status.OK
    assert status({WINDOW_US: Counts(10, 10), HOUR_US: Counts(1, 0)}) is Status.VIOLATED


def test_a_check_without_rows_in_the_last_hour_has_the_status_of_the_day() -> None:
    other = CheckInfo("expect:y", ("y",), 1.0)
    counts = {(0, DAY_US): Counts(1, 0), (1, HOUR_US): Counts(5, 1), (1, 0): Counts(100, 0)}
    first, second = states("D", 1, [CHECK, other], counts)
    assert (first.status, second.status) == (Status.OK, Status.VIOLATED)
    assert (second.hour, second.day, second.total) == (Counts(), Counts(5, 1), Counts(105, 1))
    assert second.newest_at == datetime(1970, 1, 2, tzinfo=UTC)
    assert second.as_json()["last_day"] == {"evaluated": 5, "failed": 1, "rate": 0.8}
