import os
import pwd
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from caraway.process.children import process, process_table
from caraway.process.children.part import Launch
from tests.other_users import python_for_all
from tests.unit.process.children.waiting import eventually

pytestmark = pytest.mark.slow

SLEEP = Launch(command=("sleep", "600"), folder=Path("/"))
LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="other systems can't tie processes to their parent")


def test_a_process_is_known_by_number_and_creation(tmp_path: Path) -> None:
    sleeper = process.start(SLEEP, tmp_path / "log", signal.SIGKILL)
    created = process_table.created_at(sleeper.pid)
    assert created is not None
    assert process_table.is_alive(sleeper.pid, created)
    assert not process_table.is_alive(sleeper.pid, created - 5)
    assert process.stop(sleeper, signal.SIGTERM, 10)
    assert not process_table.is_alive(sleeper.pid, created)
    assert process_table.created_at(sleeper.pid) is None
    assert process_table.memory_bytes(sleeper.pid) is None


def test_leftovers_are_ended_with_all_below_them_and_nobody_else() -> None:
    def shell() -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sh", "-c", "sleep 600 & wait"], start_new_session=True)

    guilty, innocent = shell(), shell()
    try:
        eventually(lambda: bool(psutil.Process(guilty.pid).children()))
        below = psutil.Process(guilty.pid).children()[0]
        created = {shell.pid: process_table.created_at(shell.pid) or 0.0 for shell in (guilty, innocent)}
        recorded = [(guilty.pid, created[guilty.pid]), (innocent.pid, created[innocent.pid] - 100)]
        reaper = threading.Thread(target=guilty.wait)
        reaper.start()
        assert process_table.end_leftovers(recorded, seconds=1) == [guilty.pid]
        reaper.join()
        assert not below.is_running() or below.status() == psutil.STATUS_ZOMBIE
        assert innocent.poll() is None
    finally:
        process.kill_group(innocent)
        process.kill_group(guilty)


def test_a_program_that_does_nothing_is_ended_and_one_that_is_slow_is_not(tmp_path: Path) -> None:
    log = tmp_path / "log"
    said = process.run_to_end(SLEEP, log, 0.3)
    assert said is not None
    assert said.startswith("It was ended after 0 s: in this time it wrote nothing to its log")
    slow = "import time; end = time.monotonic() + 3\nwhile time.monotonic() < end: sum(range(10_000))"
    assert process.run_to_end(Launch(command=(sys.executable, "-c", slow), folder=Path("/")), log, 1.5) is None
    failing = Launch(command=("sh", "-c", "echo no luck; exit 3"), folder=Path("/"))
    assert process.run_to_end(failing, log, 60) == "no luck"


@LINUX_ONLY
def test_a_process_ends_with_the_thread_that_started_it(tmp_path: Path) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start_and_end() -> None:
        started.append(process.start(SLEEP, tmp_path / "log", signal.SIGTERM))
        eventually(lambda: psutil.Process(started[0].pid).name() == "sleep")

    thread = threading.Thread(target=start_and_end)
    thread.start()
    thread.join()
    assert started[0].wait(10) == -signal.SIGTERM


@LINUX_ONLY
def test_a_process_ends_with_a_killed_parent(tmp_path: Path) -> None:
    program = f"""
import signal, time
from pathlib import Path
from caraway.process.children import process
from caraway.process.children.part import Launch
launch = Launch(command=("sleep", "600"), folder=Path("/"))
child = process.start(launch, Path({str(tmp_path / "log")!r}), signal.SIGKILL)
while Path(f"/proc/{{child.pid}}/comm").read_text() != "sleep\\n":
    time.sleep(0.01)
print(child.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


@LINUX_ONLY
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_reaches_a_folder_that_is_roots_alone(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "file").write_text("seen")
    # Postgres asks access(2) before it starts a program, which by default leaves capabilities out of account.
    asks = f"{python_for_all()} -ISc 'import os; print(os.access(\"{closed}/file\", os.R_OK))'"
    command = ("sh", "-c", f"id -un; {asks}; cat {closed}/file")
    for see_all, expected in [(True, "nobody\nTrue\nseen"), (False, "nobody\nFalse\ncat: ")]:
        log = tmp_path / f"log-{see_all}"
        launch = Launch(command=command, folder=Path("/"), user="nobody", see_all=see_all)
        process.start(launch, log, signal.SIGKILL).wait(10)
        assert log.read_text().startswith(expected)
    assert pwd.getpwuid(os.geteuid()).pw_name == "root"
