"""The pace of loads."""

import pytest

from caraway.dataplane.sources.pace import Pace
from caraway.dataplane.sources.reader import Progress


def at(done: int, total: int = 10_000) -> Progress:
    return Progress(done=done, total=total, unit="rows")


def test_the_pace_is_that_of_the_last_half_minute() -> None:
    now = 100.0
    pace = Pace(lambda: now)
    assert (pace.per_second, pace.remaining_s(None)) == (None, None)
    pace.note(at(0))
    assert pace.remaining_s(at(0)) is None
    # A hundred rows a second at first, ten a second later.
    for second in range(1, 201):
        now = 100.0 + second
        done = second * 100 if second <= 50 else 5_000 + (second - 50) * 10
        pace.note(at(done))
        if second == 50:
            assert pace.per_second == pytest.approx(100)
            assert pace.remaining_s(at(5_000)) == pytest.approx(50)
    assert pace.per_second == pytest.approx(10)
    assert pace.remaining_s(at(6_500)) == pytest.approx(350)
    # The estimated size of a table may be too small.
    assert pace.remaining_s(at(10_001)) == 0


def test_a_load_that_stands_still_has_no_end_and_a_new_one_begins_anew() -> None:
    now = 0.0
    pace = Pace(lambda: now)
    for second in range(100):
        now = float(second)
        pace.note(at(500))
    assert (pace.per_second, pace.remaining_s(at(500))) == (0, None)
    pace.note(at(20))
    assert pace.per_second is None
    pace.note(None)
    now += 1
    pace.note(at(0))
    assert pace.per_second is None
