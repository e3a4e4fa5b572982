"""Starting, identifying and ending processes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from caraway.children.part import Launch
from caraway.private_files import make_folder, opener

LAUNCHER = Path(__file__).with_name("launch.py")


def start(launch: Launch, log: Path | None, death_signal: signal.Signals) -> subprocess.Popen[bytes]:
    """Start a process that ends when the calling thread ends (on Linux, by a signal of the kernel).

    Args:
        launch: The command to run.
        log: The file to which its output is appended; None: it writes to the output of this process.
        death_signal: The signal by which the kernel ends it.
    """
    launcher = [sys.executable, "-I", "-S", str(LAUNCHER), f"--parent={os.getpid()}", f"--signal={int(death_signal)}"]
    if launch.user:
        launcher.append(f"--user={launch.user}")
    if launch.see_all:
        launcher.append("--see-all")
    make_folder(launch.folder)
    with contextlib.nullcontext() if log is None else open(log, "ab", opener=opener) as output:
        return subprocess.Popen(
            [*launcher, "--", *launch.command],
            cwd=launch.folder,
            env={**os.environ, **launch.environment},
            stdin=subprocess.PIPE if launch.pipe else subprocess.DEVNULL,
            stdout=output,
            stderr=None if log is None else subprocess.STDOUT,
            start_new_session=launch.leads,
        )


def run_to_end(launch: Launch, log: Path, seconds: float) -> str | None:
    """Run a program, and kill it after so many seconds; return None if it succeeded, otherwise all that it printed.

    The file `log` gets the output of this run only.
    """
    log.unlink(missing_ok=True)
    process = start(launch, log, signal.SIGKILL)
    try:
        if process.wait(seconds) == 0:
            return None
    except subprocess.TimeoutExpired:
        pass
    finally:
        kill_group(process)
    return log.read_text(errors="replace").strip()


def stop(process: subprocess.Popen[bytes], stop_signal: signal.Signals, seconds: float) -> bool:
    """Stop a process, then kill the rest of its group; return whether it ended by itself within the time."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(stop_signal)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        in_time = False
    else:
        in_time = True
    kill_group(process)
    return in_time


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, if it lives, and what it has left behind in its group, such as the JVM of a killed Python."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    # A process that doesn't lead a group isn't killed above.
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def created_at(pid: int) -> float | None:
    """Return the creation time of a process, or None if no process has this pid."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def is_alive(pid: int | None, process_created_at: float | None) -> bool:
    """Return whether the process with this pid and this creation time lives; the pid alone may have been reused."""
    if pid is None or process_created_at is None:
        return False
    try:
        process = psutil.Process(pid)
        # The system reports the creation time in hundredths of a second, so two reports of it may differ by rounding.
        return abs(process.create_time() - process_created_at) < 0.05 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def end_leftovers(processes: Iterable[tuple[int, float]], seconds: float = 10.0) -> list[int]:
    """End processes that a killed supervisor left behind, with their descendants; return the pids of those found."""
    found = [psutil.Process(pid) for pid, created in processes if is_alive(pid, created)]
    if not found:
        return []
    family = list(found)
    for process in found:
        with contextlib.suppress(psutil.Error):
            family += process.children(recursive=True)
    for process in found:
        with contextlib.suppress(psutil.Error):
            # Postgres, Python and the JVM all end in good order on SIGINT.
            process.send_signal(signal.SIGINT)
    _, alive = psutil.wait_procs(family, timeout=seconds)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=seconds)
    return [process.pid for process in found]


def memory_bytes(pid: int | None, *, with_children: bool = True) -> int | None:
    """Return the resident memory of a process and its descendants; where possible, shared pages count once."""
    if pid is None:
        return None
    try:
        leader = psutil.Process(pid)
        family = [leader, *(leader.children(recursive=True) if with_children else ())]
    except psutil.Error:
        return None
    total = 0
    for process in family:
        with contextlib.suppress(psutil.Error):
            # Postgres's processes share their buffers, which the sum of their RSS would count once for each process.
            full = process.memory_full_info() if len(family) > 1 else process.memory_info()
            total += getattr(full, "pss", full.rss)
    return total


def wait_until_gone(pid: int, process_created_at: float, seconds: float) -> bool:
    """Wait for a process that need not be a child of this one; return whether it ended in time."""
    deadline = time.monotonic() + seconds
    while is_alive(pid, process_created_at):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
