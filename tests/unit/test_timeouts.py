"""The limits of tests grow with the slowness of the machine, and with the number of threads that want it."""

import os
import subprocess
import sys
import time
from typing import Any

import pytest

from tests import timeouts
from tests.effort import default_timeout
from tests.spread import TESTS


def factor(**settings: str) -> float:
    """Return the factor that a new process computes."""
    environment = {name: value for name, value in os.environ.items() if name != "CARAWAY_TEST_PATIENCE"}
    told = subprocess.run(
        [sys.executable, "-c", "from tests.timeouts import FACTOR; print(FACTOR)"],
        cwd=TESTS.parent,
        env={**environment, **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(told.stdout)


class Limited(pytest.Item):
    """A test that may have a limit."""

    def runtest(self) -> None:
        pass


def test_the_environment_says_how_patient_tests_are() -> None:
    assert factor(CARAWAY_TEST_PATIENCE="2.5") == 2.5


def test_without_a_word_the_machine_is_measured() -> None:
    assert factor() >= 1


def test_a_single_core_takes_twice_the_time_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "_USUAL_SECONDS", 1e6)
    monkeypatch.setattr(timeouts, "cores", lambda: 4)
    assert timeouts._measured() == 1
    monkeypatch.setattr(timeouts, "cores", lambda: 1)
    assert timeouts._measured() == 2
    # The factor is limited, however slow the machine is.
    monkeypatch.setattr(timeouts, "_USUAL_SECONDS", 1e-6)
    assert timeouts._measured() == 8


def test_deadlines_and_limits_of_tests_are_multiplied(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(timeouts, "FACTOR", 3.0)
    monkeypatch.setattr(timeouts, "_crowd", lambda: 2.5)
    assert timeouts.scaled(10) == 75
    monkeypatch.setattr(timeouts, "_crowd", lambda: 100.0)
    assert timeouts.scaled(10) == 80
    monkeypatch.setattr(timeouts, "_crowd", lambda: 1.0)
    assert timeouts.scaled(10) == 30
    # A limit for a measurement also has the pace of the moment, if the machine is slower now.
    monkeypatch.setattr(timeouts, "_measured", lambda: 5.0)
    assert timeouts.scaled_now(10) == 50
    monkeypatch.setattr(timeouts, "_measured", lambda: 1.0)
    assert timeouts.scaled_now(10) == 30
    before = time.monotonic()
    assert before + 30 <= timeouts.deadline_in(10) <= time.monotonic() + 30
    items = [Limited.from_parent(request.session, name=name, nodeid=name) for name in ("own", "default")]
    items[0].add_marker(pytest.mark.timeout(600))
    for item in items:
        timeouts.scale_timeout(item, 300)
    limits = [mark.args[0] for item in items for mark in [item.get_closest_marker("timeout")] if mark]
    assert limits == [1800, 900]


def test_a_core_that_several_threads_want_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "cores", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (7.0, 1.0, 1.0))
    assert timeouts._crowd() == 3.5
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 9.0, 9.0))
    assert timeouts._crowd() == 1


class Seen:
    """A plugin that runs no test, and notes the limit that each would have had."""

    def __init__(self) -> None:
        self.limits: list[float] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool:
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, settings: Any) -> bool:
        self.limits.append(settings.timeout)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_cancel_timer(self) -> bool:
        return True


def test_pytest_s_own_limit_is_multiplied(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(timeouts, "FACTOR", 8.0)
    monkeypatch.setattr(timeouts, "_crowd", lambda: 1.0)
    seen, plugins = Seen(), request.config.pluginmanager
    item = Limited.from_parent(request.session, name="limited", nodeid="limited")
    plugins.register(seen)
    try:
        request.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
    finally:
        plugins.unregister(seen)
    assert seen.limits == [8 * default_timeout(300)]
