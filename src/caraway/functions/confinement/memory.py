"""The memory limit of a process that runs users' functions."""

import resource
from pathlib import Path

import pyarrow as pa

MEBIBYTE = 1 << 20


def limit_memory(memory_mb: int) -> None:
    """Limit the data memory of this process to what it holds now, plus an amount; reserved addresses don't count.

    Args:
        memory_mb: The amount that it may take in addition, in MiB. Only Linux has such a limit; elsewhere nothing is
            limited.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return
    # Arrow's own allocator takes 1 GiB at its first use, which the system would count against the function.
    pa.set_memory_pool(pa.system_memory_pool())
    lines = status.read_text(encoding="ascii").splitlines()
    held_kb = next(int(line.split()[1]) for line in lines if line.startswith("VmData:"))
    limit = held_kb * 1024 + memory_mb * MEBIBYTE
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
