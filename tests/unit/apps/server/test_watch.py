"""Tests of the watch over a part that fails and recovers."""

import threading

from caraway.apps.server.watch import Watch
from caraway.errors import UnavailableError


def test_a_watch_tells_what_the_last_check_said() -> None:
    failing = threading.Event()
    failing.set()
    checked = threading.Semaphore(0)

    def check() -> None:
        checked.release()
        if failing.is_set():
            raise UnavailableError("it is away")

    watch = Watch("part", check, interval_s=0.01)
    assert watch.problem() == "has not been reached yet"
    watch.start()
    assert checked.acquire(timeout=5)
    assert checked.acquire(timeout=5)
    assert watch.problem() == "it is away"
    failing.clear()
    for _ in range(3):
        assert checked.acquire(timeout=5)
    assert watch.problem() is None
    watch.stop(5)


def test_a_check_that_hangs_is_a_problem() -> None:
    now = [0.0]
    release, hanging = threading.Event(), threading.Event()
    checks = iter([lambda: None, hanging.set])

    def check() -> None:
        next(checks)()
        if hanging.is_set():
            release.wait()

    watch = Watch("part", check, interval_s=0.01, clock=lambda: now[0])
    watch.start()
    assert hanging.wait(5)
    assert watch.problem() is None
    now[0] = 100.0
    assert watch.problem() == "has not answered for 100 s"
    release.set()
    watch.stop(5)
