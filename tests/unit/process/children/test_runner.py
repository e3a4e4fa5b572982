import errno
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from caraway.apps.stack.errors import PartFailedError
from caraway.process.children import runner as runner_module
from caraway.process.children.logs import rotate
from caraway.process.children.part import PartState
from caraway.process.children.runner import Runner
from tests.unit.process.children.fake_parts import DYING, PARENT, SLOW, STUBBORN, WRITING, FakePart, RunPart
from tests.unit.process.children.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "STARTING_SECONDS", 0.02)
    monkeypatch.setattr(runner_module, "RUNNING_SECONDS", 0.02)
    monkeypatch.setattr(runner_module, "BACKOFF_SECONDS", (0.0, 0.01))


def test_a_part_becomes_ready_and_ends_when_asked(tmp_path: Path, run_part: RunPart) -> None:
    watched = run_part(FakePart(folder=tmp_path))
    eventually(lambda: watched.runner.has_been_ready)
    status = watched.runner.status
    assert status.pid is not None
    assert psutil.Process(status.pid).create_time() == status.process_created_at
    watched.stop()
    assert not psutil.pid_exists(status.pid)
    assert watched.runner.status.pid is None
    assert watched.states() == [
        PartState.PREPARING,
        PartState.STARTING,
        PartState.RUNNING,
        PartState.STOPPING,
        PartState.STOPPED,
    ]
    assert watched.log.read_text() == "working\n"


def test_a_killed_part_comes_back(tmp_path: Path, run_part: RunPart) -> None:
    part = FakePart(folder=tmp_path)
    watched = run_part(part)
    eventually(lambda: watched.runner.has_been_ready)
    first = watched.runner.status.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    eventually(lambda: watched.runner.status.restarts == 1 and watched.runner.status.state is PartState.RUNNING)
    assert watched.runner.status.pid != first
    assert part.prepared == 2
    assert any("signal 9" in status.message for status in watched.history)


def test_a_part_runs_on_if_its_log_cannot_be_moved(
    tmp_path: Path, run_part: RunPart, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Path] = []

    def full(source: Path, target: Path) -> None:
        tried.append(source)
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr("shutil.copyfile", full)
    monkeypatch.setattr(runner_module, "rotate", lambda log: rotate(log, limit=1))
    watched = run_part(FakePart(folder=tmp_path))
    eventually(lambda: watched.runner.has_been_ready and len(tried) > 2)
    assert watched.runner.status.state is PartState.RUNNING
    assert watched.runner.status.restarts == 0


def test_what_a_killed_part_left_behind_is_killed_too(tmp_path: Path, run_part: RunPart) -> None:
    watched = run_part(FakePart(folder=tmp_path, program=PARENT))
    eventually(lambda: watched.runner.has_been_ready)
    child = psutil.Process(int(watched.log.read_text().split()[0]))
    assert watched.runner.status.pid is not None
    os.kill(watched.runner.status.pid, signal.SIGKILL)
    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_repeated_deaths_are_reported_with_the_log(
    tmp_path: Path, run_part: RunPart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "BACKOFF_SECONDS", (0.0, 0.01, 0.01, 60.0))
    watched = run_part(FakePart(folder=tmp_path, program=DYING))
    eventually(lambda: watched.runner.status.restarts == 4)
    assert watched.runner.status.state is PartState.FAILED
    message = watched.runner.status.message
    assert "died 4 times in a row" in message
    assert "exit code 3" in message
    assert "no luck today" in message
    assert str(watched.log) in message
    began = time.monotonic()
    watched.stop()
    assert time.monotonic() - began < 30, "a long wait before the next start must not delay the end"


def test_a_part_that_does_not_listen_is_killed(tmp_path: Path, run_part: RunPart) -> None:
    watched = run_part(FakePart(folder=tmp_path, program=STUBBORN, stop_seconds=0.2))
    eventually(lambda: watched.runner.has_been_ready)
    pid = watched.runner.status.pid
    watched.stop()
    assert pid is not None
    assert not psutil.pid_exists(pid)


def test_a_part_that_never_becomes_ready_is_started_again(tmp_path: Path, run_part: RunPart) -> None:
    watched = run_part(FakePart(folder=tmp_path, trouble="Spark is asleep", start_seconds=0.3))
    eventually(lambda: watched.runner.status.restarts >= 1)
    assert any("wasn't ready after 0 s: Spark is asleep" in status.message for status in watched.history)
    # Its log says why, too, and that it was the supervisor who ended it.
    assert (
        "caraway: this process is ended, because it wasn't ready after 0 s: Spark is asleep" in watched.log.read_text()
    )


def test_a_part_that_is_only_slow_is_waited_for(tmp_path: Path, run_part: RunPart) -> None:
    program = SLOW.format(seconds=4, work=WRITING)
    watched = run_part(FakePart(folder=tmp_path, program=program, start_seconds=1.5))
    eventually(lambda: watched.runner.has_been_ready)
    assert watched.runner.status.restarts == 0


def test_a_part_is_not_given_up_while_another_one_holds_it_up(tmp_path: Path) -> None:
    part, held_up, looks = FakePart(folder=tmp_path, trouble="Kafka is away", start_seconds=0.3), [True], []

    def is_held_up() -> bool:
        looks.append(time.monotonic())
        return held_up[0]

    runner = Runner(
        part, tmp_path / "log", may_start=lambda: True, on_change=lambda status: None, is_held_up=is_held_up
    )
    runner.start()
    try:
        eventually(lambda: bool(looks) and looks[-1] - looks[0] > 1.0)
        assert runner.status.restarts == 0
        held_up[0] = False
        eventually(lambda: runner.status.restarts >= 1)
    finally:
        runner.stop(None)


def test_a_part_that_stops_answering_and_answers_again(tmp_path: Path, run_part: RunPart) -> None:
    part = FakePart(folder=tmp_path)
    watched = run_part(part)
    eventually(lambda: watched.runner.has_been_ready)
    part.trouble = "no answer"
    eventually(lambda: watched.runner.status.state is PartState.UNRESPONSIVE)
    assert watched.runner.status.message == "no answer"
    part.trouble = None
    eventually(lambda: watched.runner.status.state is PartState.RUNNING)
    assert watched.runner.status.restarts == 0


@pytest.mark.parametrize("error", [PartFailedError("no room"), RuntimeError("no room")])
def test_trouble_before_the_start_is_reported_and_tried_again(
    tmp_path: Path, run_part: RunPart, error: Exception
) -> None:
    def fail() -> None:
        raise error

    part = FakePart(folder=tmp_path, on_prepare=fail)
    watched = run_part(part)
    eventually(lambda: part.prepared >= 2)
    assert any("no room" in status.message for status in watched.history)
    part.on_prepare = lambda: None
    eventually(lambda: watched.runner.has_been_ready)
