"""The rounds of polled sources: in a steady time they keep their interval, and no jump of the clock stops them."""

from hypothesis import given
from hypothesis import strategies as st

from caraway.dataplane.sources.rounds import EVERY_S, Rounds


class Clock:
    def __init__(self) -> None:
        self.time = 1_700_000_000.0
        self.slept = 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.time += seconds
        self.slept += seconds


def rounds_of(clock: Clock, every_s: int | None, next_at: float = 0.0) -> Rounds:
    made = Rounds(None if every_s is None else every_s * 1_000_000, now=clock.now, sleep=clock.sleep)
    made.next_at = next_at
    return made


@given(every_s=st.integers(1, 100_000), most_s=st.floats(0.1, 10))
def test_the_first_round_begins_at_once_and_the_next_after_the_interval(every_s: int, most_s: float) -> None:
    clock = Clock()
    rounds = rounds_of(clock, every_s)
    assert rounds.wait(most_s)
    begun = clock.time
    rounds.begin()
    for _ in range(3):
        before = clock.time
        due = rounds.wait(most_s)
        assert due == (clock.time >= begun + every_s)
        assert clock.time <= before + most_s
        if due:
            break
    # Another process goes on where this one was.
    again = rounds_of(clock, every_s, rounds.next_at)
    clock.time = begun + every_s + 1
    assert again.wait(most_s)


@given(jumps=st.lists(st.integers(-(10**8), 10**8), max_size=5), every_s=st.integers(1, 10**5))
def test_whatever_the_clock_does_a_round_is_due_within_one_interval_of_steady_time(
    jumps: list[int], every_s: int
) -> None:
    clock = Clock()
    rounds = rounds_of(clock, every_s)
    rounds.begin()
    for jump in jumps:
        clock.time += jump
        if rounds.wait(every_s):
            rounds.begin()
    clock.slept = 0.0
    assert rounds.wait(every_s + 1)
    assert clock.slept <= every_s


def test_without_an_interval_it_is_half_an_hour() -> None:
    clock = Clock()
    rounds = rounds_of(clock, None)
    rounds.begin()
    assert rounds.left_s() == EVERY_S == 1800
