"""Tests of the parent of a server's processes: it starts ended processes again, and ends them when it is asked to."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from caraway.apps.server.workers import supervisor
from caraway.apps.server.workers.supervisor import REFUSED, Worker, end, keep
from caraway.process.children.runner import Runner
from tests.unit.process.children.waiting import eventually

TIMEOUT_S = 30.0
# The handlers by which a process ends when its parent asks it to, stays, or dies.
ENDS, STAYS, DIES = "lambda *_: sys.exit(0)", "signal.SIG_IGN", "signal.SIG_DFL"


def child(code: str, stop_seconds: float = TIMEOUT_S) -> Worker:
    return Worker(name="child", arguments=("-c", code), stop_seconds=stop_seconds)


def up(folder: Path, ending: str, stop_seconds: float = TIMEOUT_S) -> Runner:
    """Keep a process that waits for the end of its parent, and wait until it runs."""
    file = folder / "up"
    code = f"import signal, sys; signal.signal(signal.SIGTERM, {ending}); open({str(file)!r}, 'w').close(); input()"
    runner = keep(child(code, stop_seconds))
    eventually(file.exists)
    file.unlink()
    return runner


@pytest.mark.slow
def test_what_ends_is_started_again_ever_later(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(supervisor.PAUSES_S) == sorted(set(supervisor.PAUSES_S))
    monkeypatch.setattr(supervisor, "PAUSES_S", (0.01, 0.02, 600.0))
    tested = keep(child("import sys; sys.exit(3)"))
    eventually(lambda: tested.status.restarts == 3)
    assert "exit code 3" in tested.status.message
    assert tested.first_exit == 3
    # The long pause doesn't delay the end, and nothing was left to be stopped.
    assert end([tested])
    assert tested.status.restarts == 3


@pytest.mark.slow
def test_a_first_start_that_is_refused_is_told_from_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a second start, no process can end by itself, and so with an error, while `end` stops it.
    monkeypatch.setattr(supervisor, "PAUSES_S", (600.0,))
    tested = keep(child("import sys; sys.exit(1)"))
    eventually(lambda: tested.first_exit is not None)
    assert tested.first_exit == REFUSED
    killed = keep(child("import os; os.kill(os.getpid(), 9)"))
    eventually(lambda: killed.first_exit is not None)
    assert killed.first_exit == -signal.SIGKILL
    assert end([tested, killed])


@pytest.mark.slow
def test_processes_that_do_not_end_are_killed(tmp_path: Path) -> None:
    stubborn, willing = up(tmp_path, STAYS, stop_seconds=0.1), up(tmp_path, ENDS)
    assert end([willing])
    assert not end([stubborn])


@pytest.mark.slow
def test_a_process_that_was_just_started_ends_well(tmp_path: Path) -> None:
    """Stop a process that has no handler for the signal yet."""
    assert end([up(tmp_path, DIES)])


def test_it_imports_little() -> None:
    """Check that the parent stays small: it imports the standard library, and of Caraway only what starts processes."""
    code = (
        "import sys; before = {*sys.modules}\n"
        "import caraway.apps.server.workers.supervisor\n"
        "names = {name.partition('.')[0] for name in {*sys.modules} - before}\n"
        "print(*sorted(names - sys.stdlib_module_names))"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert set(printed.split()) == {"caraway"}
