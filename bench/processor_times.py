"""The processor time of a stack's processes and of their groups of threads, from /proc (Linux)."""

from collections import Counter
from pathlib import Path

import psutil
from rich.table import Table

# The role of a process, by a text in its command line; the first that fits counts.
ROLES = {
    "caraway.apps.server.workers": "readers",
    "caraway.dataplane.archive": "archive",
    "caraway.dataplane.ingest.intake_main": "intake",
    "caraway.apps.server": "server",
    "caraway.dataplane.streams.engine": "engine",
    "kafka.Kafka": "broker",
    "pyspark-shell": "Spark",
    "postgres": "Postgres",
    "confinement/start.py": "users' functions",
}
# The group of a thread of a JVM, by the beginning of its name.
JVM_GROUPS = {
    "C1 CompilerThre": "JIT",
    "C2 CompilerThre": "JIT",
    "GC Thread": "GC",
    "G1 ": "GC",
    "VM Thread": "GC",
    "Executor task": "tasks",
    "kafka-producer": "producers",
    "data-plane-kafk": "requests",
    "streaming-shuff": "shuffle",
    "rpc-": "shuffle",
    "shuffle-": "shuffle",
    "dispatcher-even": "RPC",
}


def processor_seconds(root: int) -> Counter[tuple[str, str]]:
    """Return the processor time in seconds of the descendants of a process, by role and group of threads.

    Threads of a JVM are grouped by their names. A Python process has its main thread, Kafka's threads ("rdk:"), those
    that it names (`caraway.process.thread_names`), and others.
    """
    found: Counter[tuple[str, str]] = Counter()
    for process in psutil.Process(root).children(recursive=True):
        try:
            role = _role(" ".join(process.cmdline()))
            for thread in process.threads():
                name = Path(f"/proc/{process.pid}/task/{thread.id}/comm").read_text().strip()
                found[role, _group(role, process.pid, thread.id, name)] += thread.user_time + thread.system_time
        except (psutil.Error, OSError):
            # The process has ended meanwhile.
            continue
    return found


def processor_table(title: str, unit: str, spent: Counter[tuple[str, str]], scale: float, groups: int) -> Table:
    """Return a table of processor times, times `scale`: each role with as many of its groups of threads."""
    table = Table(title=title)
    for heading, side in (("process", "left"), ("threads", "left"), (unit, "right")):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]  # one of rich's literals
    roles: Counter[str] = Counter()
    for (role, _), seconds in spent.items():
        roles[role] += seconds
    for role, seconds in roles.most_common():
        table.add_row(role, "", f"{scale * seconds:.1f}", style="bold")
        of_role = Counter({group: s for (name, group), s in spent.items() if name == role})
        for group, s in of_role.most_common(groups):
            table.add_row("", group, f"{scale * s:.1f}")
    return table


def resident_bytes(root: int) -> int:
    """Return the memory of the descendants of a process, in which shared pages count in part for each (PSS)."""
    total = 0
    for process in psutil.Process(root).children(recursive=True):
        try:
            total += process.memory_full_info().pss
        except (psutil.Error, OSError):
            continue
    return total


def _role(command: str) -> str:
    return next((role for text, role in ROLES.items() if text in command), "others")


def _group(role: str, pid: int, thread: int, name: str) -> str:
    if role in {"broker", "Spark"}:
        return next((group for start, group in JVM_GROUPS.items() if name.startswith(start)), "others")
    if name.startswith("rdk:"):
        return "Kafka client"
    if thread == pid:
        return "main thread"
    return "others" if name.startswith("python") else name.rstrip("0123456789-_")
