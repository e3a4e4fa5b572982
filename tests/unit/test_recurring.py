"""Recurring work, by an invented clock."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from caraway.errors import UnavailableError
from caraway.process.recurring import Recurring

# The limit of each wait, which is reached only if the code is broken.
TIMEOUT_S = 30.0
NEVER_S = 1e6


class Turns:
    """A clock that stands still: each pause ends when the test says so."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self._pausing = threading.Semaphore(0)
        self._turns = threading.Semaphore(0)

    def wait(self, event: threading.Event, seconds: float) -> None:
        self.pauses.append(seconds)
        self._pausing.release()
        assert self._turns.acquire(timeout=TIMEOUT_S)

    def until_it_pauses(self) -> None:
        assert self._pausing.acquire(timeout=TIMEOUT_S)

    def go_on(self) -> None:
        """End the pause, and wait for the next one."""
        self._turns.release()
        self.until_it_pauses()

    def end(self) -> None:
        self._turns.release()


@contextmanager
def by_turns(
    act: Callable[[], object], interval_s: float | Callable[[], float], *, at_once: bool = False
) -> Iterator[Turns]:
    turns = Turns()
    recurring = Recurring("thing", act, interval_s, at_once=at_once, wait=turns.wait)
    recurring.start()
    turns.until_it_pauses()
    yield turns
    assert not recurring.stop(0)
    turns.end()
    assert recurring.stop(TIMEOUT_S)


def test_it_is_done_after_each_interval() -> None:
    done: list[int] = []
    with by_turns(lambda: done.append(1), 5.0) as turns:
        assert len(done) == 0
        turns.go_on()
        assert len(done) == 1
        turns.go_on()
        assert len(done) == 2
        assert turns.pauses == [5.0] * 3
    assert len(done) == 2


def test_it_may_begin_at_once_and_pause_as_it_likes() -> None:
    done: list[int] = []
    with by_turns(lambda: done.append(1), lambda: float(len(done)), at_once=True) as turns:
        turns.go_on()
        turns.go_on()
        assert turns.pauses == [1.0, 2.0, 3.0]


def test_a_failing_action_is_repeated_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    errors = iter([UnavailableError("away"), UnavailableError("away"), None, UnavailableError("away"), ValueError("?")])

    def act() -> None:
        error = next(errors)
        if error is not None:
            raise error

    with caplog.at_level(logging.WARNING), by_turns(act, 1.0) as turns:
        for _ in range(5):
            turns.go_on()
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    waits = ("WARNING", "thing waits: away")
    assert told == [waits, waits, ("ERROR", "thing failed, and is tried again")]
    assert caplog.records[-1].exc_info is not None


def test_waking_ends_the_pause() -> None:
    acted = threading.Semaphore(0)
    recurring = Recurring("thing", acted.release, NEVER_S)
    recurring.start()
    for _ in range(3):
        assert not acted.acquire(blocking=False)
        recurring.wake()
        assert acted.acquire(timeout=TIMEOUT_S)
    assert recurring.stop(TIMEOUT_S)


def test_waking_during_an_action_repeats_it() -> None:
    begun, go_on = threading.Semaphore(0), threading.Semaphore(0)

    def act() -> None:
        begun.release()
        assert go_on.acquire(timeout=TIMEOUT_S)

    recurring = Recurring("thing", act, NEVER_S, at_once=True)
    recurring.start()
    assert begun.acquire(timeout=TIMEOUT_S)
    recurring.wake()
    go_on.release()
    assert begun.acquire(timeout=TIMEOUT_S)
    go_on.release()
    assert recurring.stop(TIMEOUT_S)


def test_what_takes_long_can_see_that_it_is_to_end() -> None:
    begun, seen = threading.Event(), threading.Event()

    def act() -> None:
        begun.set()
        assert recurring.stopping.wait(TIMEOUT_S)
        seen.set()

    recurring = Recurring("thing", act, NEVER_S, at_once=True)
    recurring.start()
    assert begun.wait(TIMEOUT_S)
    assert not recurring.stopping.is_set()
    assert recurring.stop(TIMEOUT_S)
    assert seen.is_set()


def test_one_that_never_began_has_ended() -> None:
    assert Recurring("thing", lambda: None, 1.0).stop(TIMEOUT_S)


def test_an_error_that_comes_again_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    errors = iter([ValueError("?"), ValueError("?"), KeyError("?"), None, None])

    def act() -> None:
        error = next(errors)
        if error is not None:
            raise error

    with caplog.at_level(logging.INFO), by_turns(act, 1.0) as turns:
        for _ in range(5):
            turns.go_on()
    assert [record.getMessage() for record in caplog.records] == [
        "thing failed, and is tried again",
        "thing failed, and is tried again",
        "thing works again",
    ]


def test_pauses_after_errors_grow_up_to_the_longest() -> None:
    failing = [True]

    def act() -> None:
        if failing[0]:
            raise UnavailableError("away")

    turns = Turns()
    recurring = Recurring("thing", act, 60.0, retry_s=(0.5, 3.0), at_once=True, wait=turns.wait)
    recurring.start()
    turns.until_it_pauses()
    for _ in range(4):
        turns.go_on()
    assert recurring.failure == "away"
    failing[0] = False
    turns.go_on()
    assert recurring.failure == ""
    assert turns.pauses == [0.5, 1.0, 2.0, 3.0, 3.0, 60.0]
    recurring.stop(0)
    turns.end()
    assert recurring.stop(TIMEOUT_S)


def test_the_thread_finishes_once_it_is_stopped() -> None:
    done: list[str] = []
    recurring = Recurring("thing", lambda: done.append("act"), NEVER_S, finish=lambda: done.append("finish"))
    recurring.start()
    # A second start does nothing.
    recurring.start()
    assert recurring.stop(None)
    assert done == ["finish"]


def test_an_action_can_end_its_repetition() -> None:
    recurring = Recurring("thing", lambda: recurring.stop(0), 0.0, at_once=True)
    recurring.start()
    recurring._thread.join(TIMEOUT_S)
    assert not recurring._thread.is_alive()
