"""The thread of a watch: it goes on after errors, and loses nothing when it ends."""

import threading
import time
from typing import cast

import pytest
import sqlalchemy as sa
from typing_extensions import override

from caraway.errors import UnavailableError
from caraway.offline.monitoring import watch as watches
from caraway.offline.monitoring.watch import Kind, Watch, Watching
from caraway.process.settings.settings import Settings
from tests.timeouts import scaled


class Scripted(Watch):
    """A watch whose passes raise or return one thing after another; `True` for ever after the last one."""

    def __init__(self, script: list[Exception | bool], events: list[str], ended: threading.Event) -> None:
        self._script, self._events, self._ended = script, events, ended
        events.append("open")

    @override
    def run_once(self) -> bool:
        if not self._script:
            self._ended.set()
            return True
        found = self._script.pop(0)
        self._events.append("pass")
        if isinstance(found, Exception):
            raise found
        return found

    @override
    def finish(self) -> None:
        self._events.append("finish")

    @override
    def close(self) -> None:
        self._events.append("close")


def run(script: list[Exception | bool], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run a watch until its script is over, and return what was asked of it."""
    monkeypatch.setattr(watches, "RETRY_SECONDS", (0.001, 0.001))
    events: list[str] = []
    ended = threading.Event()
    kind = Kind("scripted", lambda *_: Scripted(script, events, ended), lambda _: True, lambda _: None)
    watching = Watching(kind, cast("Settings", None), cast("sa.Engine", None))
    watching.start()
    assert ended.wait(scaled(10))
    assert watching.stop(scaled(10))
    return events


def test_a_service_that_is_away_leaves_the_watch_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run([UnavailableError("away"), True], monkeypatch) == ["open", "pass", "pass", "finish", "close"]


def test_a_watch_that_failed_half_way_is_opened_anew_and_records_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = ["open", "pass", "pass", "close"]
    assert run([True, ValueError("a defect"), True], monkeypatch) == [*failed, "open", "pass", "finish", "close"]


def test_a_watch_rests_nine_times_as_long_as_its_pass_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 100.0, 102.0, 104.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now, 104.0))
    kind = Kind("slow", lambda *_: Scripted([False], [], threading.Event()), lambda _: True, lambda _: 5.0)
    watching = Watching(kind, cast("Settings", None), cast("sa.Engine", None))
    watching._make_pass()
    assert watching._pause_s() == pytest.approx(18.0)
    assert watching.worked_at == 0.0
