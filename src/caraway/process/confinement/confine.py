"""The steps by which a process gives up its rights before it runs a user's function."""

import os
import resource
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from caraway.process.allocator import share_arenas
from caraway.process.confinement import landlock, places, seccomp, system
from caraway.process.confinement.policy import Confinement, Report

# The largest file in bytes that a function may write, in its scratch folder or as its output. The limit stops a
# function that writes without end.
FILE_BYTES = 256 << 20
# The most files that a process may have open.
OPEN_FILES = 1024
# The number of threads and processes that a confined process may start. Linux limits those of a user id as a whole
# (RLIMIT_NPROC), so this number is added to those that its user has already. Libraries start a thread for each
# processor, and some have several such pools.
THREADS = 512
# The highest oom_score_adj: when memory runs out, the kernel kills a process with this score first.
OOM_FIRST = "1000"
# Bytes of virtual address space (RLIMIT_AS) that a process may have beyond its limit of memory. Libraries and files
# that the process maps take addresses, but no memory of its own.
MAPPED_BYTES = 1 << 30


def confine(policy: Confinement, scratch: Path, memory_mb: int | None, parent: int) -> Report:
    """Remove all rights that a policy doesn't grant from this process, for good.

    Args:
        policy: The rights that remain.
        scratch: A folder of this process, which becomes its working directory.
        memory_mb: The memory that the process may use beyond its present use, in MiB.
        parent: The process that started this one. This process ends when its parent does.
    """
    os.environ["HOME"] = os.environ["TMPDIR"] = str(scratch)
    # `tempfile` remembers the folder that it found in the fork server, so it is set here to the scratch folder.
    tempfile.tempdir = str(scratch)
    os.chdir(scratch)
    # File descriptor 0 is /dev/null by now, but the fork has copied the `sys.stdin` object of the fork server with its
    # state, so a new object replaces it.
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 (open as long as the process lives)
    if system.LINUX:
        # If the machine's memory runs out, the kernel ends users' functions before it ends the platform.
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(OOM_FIRST, encoding="ascii")
    if memory_mb is not None:
        _limit_memory(memory_mb)
    if policy.mode == "off":
        _end_with(parent)
        return Report(missing=("functions.isolation is off: functions have all rights of the platform",))
    _limit_resources()
    if not system.LINUX:
        return Report(
            in_force=("an empty environment",),
            missing=("no limits to files, network and processes: this system has none that Caraway uses",),
        )
    _limit_threads(policy.user if os.geteuid() == 0 else os.geteuid())
    in_force: list[str] = []
    missing: list[str] = []
    for part in (_network, _files, _user):
        for good, text in part(policy, scratch):
            (in_force if good else missing).append(text)
    # `_end_with` comes after `_user`, since a change of user clears its setting, and before `_calls`, whose filter
    # refuses to change the setting.
    _end_with(parent)
    for good, text in _calls(policy):
        (in_force if good else missing).append(text)
    return Report(in_force=(*in_force, "an empty environment"), missing=tuple(missing))


def _limit_resources() -> None:
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
    ):
        hard = resource.getrlimit(kind)[1]
        bound = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (bound, bound))


def _network(policy: Confinement, _: Path) -> Iterator[tuple[bool, str]]:
    """Move to a network namespace without connections, if permitted; the filter of calls also refuses sockets."""
    if policy.network or os.geteuid() != 0:
        return
    with suppress(OSError):
        system.unshare(system.CLONE_NEWNET)
        yield True, "a network namespace of its own"


def _files(policy: Confinement, scratch: Path) -> Iterator[tuple[bool, str]]:
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    asked = [
        *(Path(path) for path in (*places.SYSTEM, *places.SETTINGS)),
        *(Path(path) for path in places.RESOLVING if policy.network),
    ]
    readable, listed = places.around([*places.python_places(), *policy.readable, *asked], policy.hidden)
    try:
        landlock.restrict(
            readable=readable,
            listed=listed,
            writable=[scratch],
            devices=[Path(path) for path in places.DEVICES],
            network=policy.network,
        )
    except OSError as error:
        yield False, f"files aren't limited: the kernel has no Landlock ({error.strerror})"
    else:
        yield True, "no files but Python's, the system's libraries and a scratch folder"


def _user(policy: Confinement, scratch: Path) -> Iterator[tuple[bool, str]]:
    # The bounding set limits the capabilities of programs that are executed later. Only root may remove capabilities
    # from it; for other users `no_new_privs` limits them. The capabilities of this process itself are removed below.
    for capability in range(64):
        with suppress(OSError):
            system.prctl(system.PR_CAPBSET_DROP, capability)
    kept: list[int] = []
    if os.geteuid() != 0:
        yield True, f"user {os.geteuid()}, who is the platform's"
    else:
        user, needed = policy.user, _needed(policy)
        try:
            os.chown(scratch, user, user)
            os.setgroups([])
            os.setresgid(user, user, user)
            system.prctl(system.PR_SET_KEEPCAPS, 1)
            os.setresuid(user, user, user)
        except OSError as error:
            yield False, f"it runs as user {os.geteuid()}: it can't become user {user} ({error.strerror})"
        else:
            kept = needed
            yield True, f"user {user}"
    try:
        system.keep_capabilities(*kept)
    except OSError as error:
        yield False, f"it keeps capabilities of user {os.geteuid()} ({error.strerror})"


def _needed(policy: Confinement) -> list[int]:
    """Return the capabilities without which another user than root can't read the files that functions may read.

    Python may be in a folder that this user can't enter, such as /root. Then the process keeps the capability to read
    files of other users. Landlock restricts these to Python's files; without Landlock the process keeps no capability.
    """
    readable, _ = places.around([*places.python_places(), *policy.readable], policy.hidden)
    sees = landlock.version() == 0 or places.open_to_all(readable)
    return [] if sees else [system.CAP_DAC_READ_SEARCH]


def _limit_threads(user: int) -> None:
    """Limit the threads and processes of the user to `THREADS` more than run now, some of them in other processes."""
    running = 0
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == user:
                running += sum(1 for _ in (entry / "task").iterdir())
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NPROC, (running + THREADS, running + THREADS))


def _calls(policy: Confinement) -> Iterator[tuple[bool, str]]:
    if not seccomp.is_known():
        yield False, "network and processes aren't limited: the numbers of this processor's system calls aren't known"
        return
    try:
        seccomp.install(network=policy.network, processes=policy.processes)
    except OSError as error:
        yield False, f"network and processes aren't limited: {error.strerror}"
        return
    yield True, "network allowed" if policy.network else "no network"
    yield True, "processes allowed" if policy.processes else "no other processes"


def _end_with(parent: int) -> None:
    """Make the kernel end this process when `parent` ends."""
    if system.LINUX:
        system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _limit_memory(memory_mb: int) -> None:
    """Limit the data memory of this process to what it holds now, and `memory_mb` MiB more.

    Linux doesn't count as data memory what a process may not write to, nor stacks. So a hostile function could fill
    memory, take the right to write from itself, and go on with other memory. The limit of all addresses, which is
    `MAPPED_BYTES` above the other one, ends that. The filter of calls refuses shared memory. Only Linux has these
    limits; elsewhere nothing is limited.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return
    # Arrow's own allocator maps 1 GiB at its first use. Linux counts that as data memory of the process, so less would
    # be left for the function. With the system's allocator only the memory that is used counts.
    pa.set_memory_pool(pa.system_memory_pool())
    # Otherwise glibc could give each thread an arena of its own. Each takes 64 MiB of addresses, which are limited
    # below.
    share_arenas()
    lines = (line.split() for line in status.read_text(encoding="ascii").splitlines())
    held_kb = {words[0]: int(words[1]) for words in lines if words[0] in {"VmData:", "VmSize:"}}
    for kind, name, more in ((resource.RLIMIT_DATA, "VmData:", 0), (resource.RLIMIT_AS, "VmSize:", MAPPED_BYTES)):
        limit = held_kb[name] * 1024 + (memory_mb << 20) + more
        resource.setrlimit(kind, (limit, limit))
