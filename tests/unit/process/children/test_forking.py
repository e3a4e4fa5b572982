"""Programs that a fork server has imported run in processes of their own."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from caraway.process.children.forking import Forked, ForkServer, name_of
from caraway.process.confinement import process
from tests.timeouts import scaled
from tests.unit.process.children.waiting import eventually

PROGRAM = """
import os, sys, time

if __name__ == "__main__":
    print(sys.argv[1:], os.environ.get("MARK"), flush=True)
    if sys.argv[1] == "hang":
        time.sleep(600)
    sys.exit(int(sys.argv[1]))
"""
Start = Callable[..., Forked]


@pytest.fixture
def forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "__main__.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = ForkServer(["program"])
    yield server
    server.end()


@pytest.fixture
def start(forks: ForkServer, tmp_path: Path) -> Start:
    def run(*arguments: str) -> Forked:
        return forks.start("program", arguments, environment={**os.environ, "MARK": "here"}, log=tmp_path / "log")

    return run


def server_of(forks: ForkServer) -> psutil.Process:
    assert forks._process is not None
    return psutil.Process(forks._process.pid)


def test_a_process_has_its_own_arguments_environment_output_and_exit_code(start: Start, tmp_path: Path) -> None:
    first, second = start("3"), start("0", "more")
    assert (first.wait(scaled(30)), second.wait(scaled(30))) == (3, 0)
    assert sorted((tmp_path / "log").read_text().splitlines()) == ["['0', 'more'] here", "['3'] here"]
    assert "MARK" not in os.environ


def test_a_process_may_end_before_its_number_is_read() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b"1234\n-9\n")
        process = Forked(ours)
        assert (process.pid, process.wait(1)) == (1234, -9)


def test_a_process_can_be_killed_by_itself(start: Start, forks: ForkServer) -> None:
    killed, other = start("hang"), start("hang")
    server = server_of(forks).pid
    killed.send_signal(signal.SIGKILL)
    assert killed.wait(scaled(30)) == -signal.SIGKILL
    assert other.poll() is None
    eventually(lambda: psutil.Process(other.pid).name() == name_of("program"), scaled(20))
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(0.01)
    other.terminate()
    assert other.wait(scaled(30)) == -signal.SIGTERM
    assert start("0").wait(scaled(30)) == 0
    assert server_of(forks).pid == server


def test_the_processes_of_a_killed_fork_server_end_and_the_next_one_has_another(
    start: Start, forks: ForkServer
) -> None:
    process = start("hang")
    os.kill(server_of(forks).pid, signal.SIGKILL)
    assert process.wait(scaled(30)) == -signal.SIGTERM
    eventually(lambda: not psutil.pid_exists(process.pid), scaled(20))
    assert start("4").wait(scaled(30)) == 4


def test_a_fork_server_without_requests_ends_and_is_started_again(start: Start, forks: ForkServer) -> None:
    forks._idle_seconds = 0.01
    assert start("0").wait(scaled(30)) == 0
    server_of(forks).wait(scaled(30))
    assert start("5").wait(scaled(30)) == 5


def test_a_program_that_cannot_be_imported_is_an_error(forks: ForkServer) -> None:
    forks._programs = ["no_such_program"]
    with pytest.raises(OSError, match="no_such_program"):
        forks.start("no_such_program", environment={})


CALLER = """
import psutil

from caraway.process.confinement.policy import Confinement
from caraway.process.confinement.process import ConfinedProcess

if __name__ == "__main__":
    process = ConfinedProcess("tests.unit.process.confinement.attempts:serve", Confinement(mode="available"), None)
    print(len(psutil.Process().children()), process.report.in_force != (), flush=True)
    process.end()
"""


@pytest.mark.slow
def test_programs_share_the_fork_server_of_users_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "caller"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "__main__.py").write_text(CALLER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    target = "tests.unit.process.confinement.attempts:serve"
    forks = ForkServer(["caller"], functions=target)
    log = tmp_path / "log"
    try:
        for _ in range(2):
            assert forks.start("caller", environment=os.environ, log=log).wait(scaled(60)) == 0
        # No program has started a fork server as its child.
        assert log.read_text().splitlines() == ["0 True"] * 2
        shared = process._server_of(target)
        assert shared._process is not None
        os.kill(shared._process.pid, signal.SIGKILL)
        shared._process.wait()
        assert forks.start("caller", environment=os.environ, log=log).wait(scaled(60)) == 0
        assert log.read_text().splitlines()[2:] == ["1 True"]
    finally:
        forks.end()
