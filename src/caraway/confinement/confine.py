"""Give up rights: what a process does before it runs a user's function."""

import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from caraway.confinement import landlock, places, seccomp, system
from caraway.confinement.policy import Confinement, Report
from caraway.memory import limit_memory

# Files of a function in its scratch folder, and what it prints: one that writes without end stops here.
FILE_BYTES = 256 << 20
OPEN_FILES = 1024
# Libraries start a thread for each processor, some several pools of them.
THREADS = 512


def confine(policy: Confinement, scratch: Path, memory_mb: int | None, parent: int) -> Report:
    """Give up all rights that a policy doesn't grant, for good.

    Args:
        policy: What remains allowed.
        scratch: A folder of this process, which becomes its working directory.
        memory_mb: What the process may take beyond what it holds now, in MiB.
        parent: The process that started this one, with which it ends.
    """
    os.environ["HOME"] = os.environ["TMPDIR"] = str(scratch)
    os.chdir(scratch)
    # It was forked: what its parent printed last isn't its own.
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 (open as long as the process lives)
    if memory_mb is not None:
        limit_memory(memory_mb)
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
    for part in (_network, _files, _user, _calls):
        for good, text in part(policy, scratch):
            (in_force if good else missing).append(text)
    _end_with(parent)
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
    """Move to a network of its own, which leads nowhere, if this process may; the filter of calls closes it anyway."""
    if policy.network or os.geteuid() != 0:
        return
    with suppress(OSError):
        system.unshare(system.CLONE_NEWNET)
        yield True, "a network namespace of its own"


def _files(policy: Confinement, scratch: Path) -> Iterator[tuple[bool, str]]:
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    asked = [
        *places.python_places(),
        *policy.readable,
        *(Path(path) for path in (*places.SYSTEM, *places.SETTINGS)),
        *(Path(path) for path in places.RESOLVING if policy.network),
    ]
    readable, listed = places.around(asked, policy.hidden)
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
    if os.geteuid() != 0:
        with suppress(OSError):
            system.keep_capabilities()
        yield True, f"user {os.geteuid()}, who is the platform's"
        return
    user = policy.user
    # Python may lie where this user can't go, such as /root; then one capability remains, to read files of others. By
    # Landlock these are Python's alone, and without Landlock it isn't kept.
    must_see = landlock.version() > 0 and not places.open_to_all([*places.python_places(), *policy.readable])
    try:
        os.chown(scratch, user, user)
        if must_see:
            system.prctl(system.PR_SET_KEEPCAPS, 1)
        for capability in range(64):
            with suppress(OSError):
                system.prctl(system.PR_CAPBSET_DROP, capability)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        if must_see:
            system.keep_capabilities(system.CAP_DAC_READ_SEARCH)
    except OSError as error:
        yield False, f"it runs as user {os.geteuid()}: it can't become user {user} ({error.strerror})"
        return
    yield True, f"user {user}"


def _limit_threads(user: int) -> None:
    """Bound the threads and processes of the user, who may have others than this process."""
    running = 0
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == user:
                running += sum(1 for _ in (entry / "task").iterdir())
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NPROC, (running + THREADS, running + THREADS))


def _calls(policy: Confinement, _: Path) -> Iterator[tuple[bool, str]]:
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
    """Have the kernel end this process with the one that started it; after a change of user, which clears that."""
    if system.LINUX:
        system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
