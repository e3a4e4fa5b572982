from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.reference.aggregates.windows import Life, buckets_of, life, session_window, sessions
from tests.unit.compute.reference.building import FOREVER, S, hopping, last

LATE = 10**15
TIMES = st.integers(-50 * S, 50 * S)


@pytest.mark.spec('datasets:8.1:Continuous("forever")')
@given(TIMES)
def test_forever_counts_from_the_rows_time_on(time_us: int) -> None:
    assert life(FOREVER, time_us, None, LATE) == Life(time_us, None)
    assert life(FOREVER, time_us, time_us + 5, LATE) == Life(time_us, time_us + 5)


@pytest.mark.spec("datasets:8.1:Continuous(d)")
@pytest.mark.parametrize(
    ("at_us", "counts"),
    [(-1, False), (0, True), (60 * S, True), (60 * S + S // 2, True), (61 * S - 1, True), (61 * S, False)],
)
@pytest.mark.parametrize("time_us", [0, 12345, 999_999, -1])
def test_a_continuous_window_ends_a_second_after_its_length(time_us: int, at_us: int, counts: bool) -> None:
    lived = life(last(60), time_us, None, LATE)
    assert lived is not None
    assert lived.holds(time_us + at_us) is counts


def test_what_is_taken_back_no_longer_counts() -> None:
    assert life(last(60), 0, 7, LATE) == Life(0, 7)
    assert life(last(60), 0, 100 * S, LATE) == Life(0, 61 * S)
    assert life(last(60), 10, 10, LATE) is None
    assert life(last(60), 10, 9, LATE) is None


@pytest.mark.spec("datasets:8.1:Tumbling(d)")
@given(TIMES, TIMES, st.integers(1, 9))
def test_a_tumbling_window_is_the_last_complete_bucket(time_us: int, at_us: int, length: int) -> None:
    lived = life(hopping(length, length), time_us, None, LATE)
    end = Fraction(at_us, length * S).__floor__() * length * S
    assert (lived is not None and lived.holds(at_us)) is (end - length * S <= time_us < end)


@pytest.mark.spec("datasets:8.1:Hopping(d, s)")
@given(TIMES, TIMES, st.integers(1, 9), st.integers(0, 9))
def test_a_hopping_window_is_the_last_bucket_that_ended(time_us: int, at_us: int, stride: int, more: int) -> None:
    length = stride + more
    lived = life(hopping(length, stride), time_us, None, LATE)
    # This is the greatest n * stride + length that isn't after the read.
    end = max(n * stride + length for n in range(-200, 200) if (n * stride + length) * S <= at_us) * S
    assert (lived is not None and lived.holds(at_us)) is (end - length * S <= time_us < end)


@pytest.mark.spec('datasets:8.1:Hopping("forever", s)')
@given(TIMES, TIMES, st.integers(1, 9))
def test_an_unbounded_hop_is_all_before_a_multiple_of_the_stride(time_us: int, at_us: int, stride: int) -> None:
    lived = life(hopping(None, stride), time_us, None, LATE)
    end = at_us // (stride * S) * stride * S
    assert (lived is not None and lived.holds(at_us)) is (time_us < end)


@given(TIMES, st.integers(0, 20 * S), TIMES, st.integers(1, 9))
def test_a_retraction_counts_from_the_next_end_of_a_bucket(time_us: int, after: int, at_us: int, stride: int) -> None:
    retracted = time_us + after
    lived = life(hopping(None, stride), time_us, retracted, LATE)
    end = at_us // (stride * S) * stride * S
    assert (lived is not None and lived.holds(at_us)) is (time_us < end <= retracted)


@pytest.mark.parametrize(
    ("max_event_time", "lookback", "expected"),
    [
        (9.999999, 0, None),
        (10, 0, Life(10 * S, None)),
        (19.999999, 0, Life(10 * S, None)),
        (20, 0, Life(10 * S, 20 * S)),
        (14, 5, None),
        (15, 5, Life(10 * S, None)),
        (24, 5, Life(10 * S, None)),
        (25, 5, Life(10 * S, 20 * S)),
    ],
)
def test_buckets_close_by_the_max_event_time_less_the_lookback(
    max_event_time: float, lookback: int, expected: Life | None
) -> None:
    assert life(hopping(10, 10, lookback), 3 * S, None, round(max_event_time * S)) == expected


@given(TIMES, st.integers(1, 5), st.integers(0, 9), TIMES)
def test_a_row_lies_in_each_closed_bucket_around_it(
    time_us: int, stride: int, more: int, max_event_time_us: int
) -> None:
    length = stride + more
    ends = [(n * stride + length) * S for n in range(-100, 100)]
    expected = [end for end in ends if end - length * S <= time_us < end <= max_event_time_us]
    assert list(buckets_of(hopping(length, stride), length * S, time_us, max_event_time_us)) == expected


@pytest.mark.spec("datasets:8.1:Session(g)")
def test_a_distance_of_the_gap_continues_a_session() -> None:
    times = [0, 5 * S, 10 * S, 15 * S + 999_999, 21 * S, 21 * S]
    # Sessions count whole seconds, so 15.999999 is 15.
    assert sessions(times, 5 * S) == [(0, 4), (4, 6)]
    assert sessions([], 5 * S) == []


@pytest.mark.spec("datasets:8.1:Session(g)")
def test_a_session_ends_a_microsecond_into_its_last_second() -> None:
    assert session_window(500, 7 * S + 999_999) == (0, 7 * S + 1)
    assert session_window(-1, -1) == (-S, -S + 1)
