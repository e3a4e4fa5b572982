"""Start, identify and end processes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from caraway.stack.part import Launch
from caraway.stack.private import make_folder, opener

LAUNCHER = Path(__file__).with_name("launch.py")


def start(launch: Launch, log: Path, death_signal: signal.Signals) -> subprocess.Popen[bytes]:
    """Start a process that writes into `log` and ends when the calling thread ends.

    It leads a process group of its own: Ctrl-C in a terminal reaches us only, and we stop the parts in order.

    Args:
        launch: What to start.
        log: Where its output goes; appended to.
        death_signal: What the kernel sends to it if we are killed (Linux).
    """
    launcher = [sys.executable, "-I", "-S", str(LAUNCHER), f"--parent={os.getpid()}", f"--signal={int(death_signal)}"]
    if launch.user:
        launcher.append(f"--user={launch.user}")
    if launch.see_all:
        launcher.append("--see-all")
    make_folder(launch.folder)
    with open(log, "ab", opener=opener) as output:
        return subprocess.Popen(
            [*launcher, "--", *launch.command],
            cwd=launch.folder,
            env={**os.environ, **launch.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def stop(process: subprocess.Popen[bytes], stop_signal: signal.Signals, seconds: float) -> bool:
    """End a process and what is left of its group; return whether it went by itself within that time."""
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
    """Kill what a part left behind, such as the JVM of a killed Python, and the part itself if it lives."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def created_at(pid: int) -> float | None:
    """Return the creation time of a process, or None if there is none of that number."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def is_alive(pid: int | None, process_created_at: float | None) -> bool:
    """Return whether that very process lives; its number alone might belong to another one by now."""
    if pid is None or process_created_at is None:
        return False
    try:
        process = psutil.Process(pid)
        # The clock that both times come from ticks in hundredths of a second.
        return abs(process.create_time() - process_created_at) < 0.05 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def end_leftovers(processes: Iterable[tuple[int, float]], seconds: float = 10.0) -> list[int]:
    """End processes, and all below them, that a killed supervisor left behind; give the numbers of those found."""
    found = [psutil.Process(pid) for pid, created in processes if is_alive(pid, created)]
    if not found:
        return []
    family = list(found)
    for process in found:
        with contextlib.suppress(psutil.Error):
            family += process.children(recursive=True)
    for process in found:
        with contextlib.suppress(psutil.Error):
            # Postgres and Python understand this as: end now, in order. A JVM too.
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
            # Postgres' processes share their buffers: the sum of their RSS counts these once a process.
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
