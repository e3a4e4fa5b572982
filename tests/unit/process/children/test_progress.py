"""A process that isn't ready is waited for while it makes progress, and no longer than a bound."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from caraway.process.children.progress import BUSY_SHARE, LOOK_SECONDS, ProgressTimeout, Signs, signs_of

IDLE_S, LONGEST_S = 90.0, 600.0


@dataclass
class World:
    """A clock and the signs of a process, both set by a test."""

    now: float = 1_000.0
    log_bytes: int = 0
    processor_s: float = 0.0
    timeout: ProgressTimeout = field(init=False)

    def __post_init__(self) -> None:
        self.timeout = ProgressTimeout(IDLE_S, self.signs, longest_s=LONGEST_S, clock=lambda: self.now)

    def signs(self) -> Signs:
        return Signs(log_bytes=self.log_bytes, processor_s=self.processor_s)

    def limit_after(
        self, seconds: float, *, writes: int = 0, share: float = 0.0, excused: bool = False
    ) -> float | None:
        """Return the limit that the process exceeds within so many seconds, in which it works evenly."""
        for _ in range(int(seconds)):
            self.now += 1
            self.log_bytes += writes
            self.processor_s += share
            if (given_up := self.timeout.given_up(excused=excused)) is not None:
                return given_up.seconds
        return None


def test_a_process_that_does_nothing_is_given_up_after_the_limit() -> None:
    world = World()
    assert world.limit_after(IDLE_S) is None
    assert world.limit_after(1) == IDLE_S


@pytest.mark.parametrize(("writes", "share"), [(1, 0.0), (0, 2 * BUSY_SHARE), (7, 1.5)])
def test_a_process_that_makes_progress_is_waited_for_up_to_the_bound(writes: int, share: float) -> None:
    world = World()
    assert world.limit_after(LONGEST_S, writes=writes, share=share) is None
    assert world.limit_after(1, writes=writes, share=share) == LONGEST_S


def test_the_timers_of_an_idle_process_are_no_progress() -> None:
    assert World().limit_after(LONGEST_S, share=BUSY_SHARE / 2) == IDLE_S


def test_the_limit_counts_from_the_last_progress() -> None:
    world = World()
    assert world.limit_after(80) is None
    assert world.limit_after(1, writes=100) is None
    assert world.limit_after(IDLE_S) is None
    assert world.limit_after(2 * LOOK_SECONDS) == IDLE_S


def test_a_log_that_was_moved_away_is_progress() -> None:
    world = World(log_bytes=1_000)
    assert world.limit_after(80) is None
    world.log_bytes = 10
    assert world.limit_after(80) is None


def test_a_child_that_ended_hides_no_progress() -> None:
    world = World(processor_s=500.0)
    world.processor_s = 0.0
    assert world.limit_after(2 * IDLE_S, share=2 * BUSY_SHARE) is None


def test_the_time_in_which_a_needed_process_is_missing_does_not_count() -> None:
    world = World()
    assert world.limit_after(4 * IDLE_S, excused=True) is None
    assert world.limit_after(IDLE_S) is None
    assert world.limit_after(1) == IDLE_S


def test_the_signs_of_a_process_are_read_from_the_system(tmp_path: Path) -> None:
    log = tmp_path / "log"
    before = signs_of(os.getpid(), log)
    assert before.log_bytes == 0
    assert before.processor_s > 0
    log.write_text("12345")
    assert sum(range(300_000))
    after = signs_of(os.getpid(), log)
    assert after.log_bytes == 5
    assert after.processor_s >= before.processor_s
    assert signs_of(2**22 + 1, None) == Signs(log_bytes=0, processor_s=0.0)
