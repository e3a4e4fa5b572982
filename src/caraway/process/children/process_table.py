"""Processes as the system's table of processes shows them, also those that this process has not started."""

import contextlib
import signal
import time
from collections.abc import Iterable

import psutil


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
            # After SIGTERM Postgres waits until every client has left, but it ends at once on SIGINT. The JVM ignores
            # SIGINT if a shell has started the stack in the background.
            process.send_signal(signal.SIGINT if process.name().startswith("postgres") else signal.SIGTERM)
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
            # Postgres's processes share their buffers, and RSS counts shared memory once for each process. PSS divides
            # it among them, so its sum is right, but it is slower to read and needed only for several processes.
            full = process.memory_full_info() if len(family) > 1 else process.memory_info()
            total += getattr(full, "pss", full.rss)
    return total


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process and its descendants have used; 0 if there is no such process."""
    try:
        leader = psutil.Process(pid)
        family = [leader, *leader.children(recursive=True)]
    except psutil.Error:
        return 0.0
    total = 0.0
    for process in family:
        with contextlib.suppress(psutil.Error):
            # The first four times include those of children that have ended, such as the connections of a Postgres.
            total += sum(process.cpu_times()[:4])
    return total


def wait_until_gone(pid: int, process_created_at: float, seconds: float) -> bool:
    """Wait for a process that need not be a child of this one; return whether it ended in time."""
    deadline = time.monotonic() + seconds
    while is_alive(pid, process_created_at):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
