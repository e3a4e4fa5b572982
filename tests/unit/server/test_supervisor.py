"""Tests of the parent of a server's processes: it starts ended processes again, and ends them when it is asked to."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from caraway.server.workers.supervisor import WorkerProcess, end

TIMEOUT_S = 30.0
# A process that ends well when its parent asks it to, or is gone.
SLEEPER = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True); input()"


def child(code: str) -> WorkerProcess:
    return WorkerProcess("child", [sys.executable, "-c", code])


def look_until_ended(tested: WorkerProcess, times: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while len(tested.ends) < times:
        assert time.monotonic() < deadline
        tested.look()


@pytest.mark.slow
def test_what_ends_is_started_again_ever_later() -> None:
    tested = child("import sys; sys.exit(3)")
    pauses = []
    for times in (1, 2, 3):
        look_until_ended(tested, times)
        pauses.append(tested.pause_s)
    assert tested.ends == [3, 3, 3]
    assert pauses == sorted(set(pauses))
    assert not tested.refused


@pytest.mark.slow
def test_a_first_start_that_is_refused_is_told_from_a_later_one() -> None:
    tested = child("import sys; sys.exit(1)")
    look_until_ended(tested, 1)
    assert tested.refused
    killed = child("import os; os.kill(os.getpid(), 9)")
    look_until_ended(killed, 1)
    assert killed.ends == [-signal.SIGKILL]
    assert not killed.refused


@pytest.mark.slow
def test_processes_that_do_not_end_are_killed() -> None:
    stubborn = child("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); input()")
    willing = child(SLEEPER)
    for tested in (stubborn, willing):
        tested.process = subprocess.Popen(tested.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert tested.process.stdout is not None
        assert tested.process.stdout.readline() == b"up\n"
    assert end([willing], TIMEOUT_S)
    assert not end([stubborn, WorkerProcess("not started", [])], 0.1)
    for tested in (stubborn, willing):
        assert tested.process is not None
        assert tested.process.stdin is not None
        assert tested.process.stdout is not None
        tested.process.stdin.close()
        tested.process.stdout.close()
    assert [tested.process.returncode for tested in (stubborn, willing) if tested.process] == [-signal.SIGKILL, 0]


@pytest.mark.slow
def test_a_process_that_was_just_started_ends_well() -> None:
    """Stop a process that has no handler for the signal yet."""
    tested = child("print('up', flush=True); input()")
    tested.process = subprocess.Popen(tested.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with tested.process:
        assert tested.process.stdout is not None
        assert tested.process.stdout.readline() == b"up\n"
        assert end([tested], TIMEOUT_S)
    assert tested.process.returncode == -signal.SIGTERM


def test_it_imports_the_standard_library_only() -> None:
    """Check that the parent stays small: a process for nothing but looking after others."""
    file = Path(sys.modules[WorkerProcess.__module__].__file__ or "")
    imported = {
        line.split()[1].partition(".")[0] for line in file.read_text().splitlines() if line[:5] in {"impor", "from "}
    }
    assert imported <= sys.stdlib_module_names
