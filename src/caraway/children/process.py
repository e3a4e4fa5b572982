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
    """Start a process that ends when the calling thread ends.

    Args:
        launch: The command to run.
        log: The file to which its output is appended; None: its output is this process's.
        death_signal: The signal that the kernel sends to it if this process is killed (Linux).
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
    """Kill a part, if it lives, and processes that it left behind, such as the JVM of a killed Python."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    # This is for a process that doesn't lead a group.
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
        # Both times come from a clock that ticks in hundredths of a second.
        return abs(process.create_time() - process_created_at) < 0.05 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def end_leftovers(processes: Iterable[tuple[int, float]], seconds: float = 10.0) -> list[int]:
    """End processes, and all below them, that a killed supervisor left behind; return the pids of those found."""
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
    """Return the resident memory of a process and of all below it; shared pages count once where that is known."""
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
    """Wait for a process that isn't our child; return whether it ended in time."""
    deadline = time.monotonic() + seconds
    while is_alive(pid, process_created_at):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
