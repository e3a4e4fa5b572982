"""A filter of system calls that refuses sockets, other processes and the administration of the kernel (Linux).

https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator

from caraway.functions.confinement import system

# The kernel's codes, from linux/audit.h, of the architectures whose system call numbers this module has.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# The numbers of the system calls on x86-64, and on the architectures that use Linux's generic table, such as aarch64;
# None if a call is missing there.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "accept": (43, 202),
    "accept4": (288, 242),
    "acct": (163, 89),
    "add_key": (248, 217),
    "bind": (49, 200),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clone": (56, 220),
    "clone3": (435, 435),
    "connect": (42, 203),
    "execve": (59, 221),
    "execveat": (322, 281),
    "fanotify_init": (300, 262),
    "fork": (57, None),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "io_uring_setup": (425, 425),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "listen": (50, 201),
    "migrate_pages": (256, 238),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "socket": (41, 198),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vfork": (58, None),
}

_NETWORK = ("accept", "accept4", "bind", "connect", "listen", "socket")
_PROCESSES = ("execve", "execveat", "fork", "vfork")
# Calls whose first argument is the id of a process. They are allowed only for this process, by its id or by 0.
_OF_A_PROCESS = (
    "kill",
    "prlimit64",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
    "tgkill",
)
# Calls that are refused with ENOSYS, as if the kernel didn't have them. So the C library uses `clone` in place of
# `clone3`, and programs that need io_uring fall back to other calls or report a clear error.
_UNKNOWN = ("clone3", "io_uring_setup")
_NEVER = tuple(name for name in _NUMBERS if name not in {*_NETWORK, *_PROCESSES, *_OF_A_PROCESS, *_UNKNOWN, "clone"})
# The number of the last system call of Linux 6.18. The filter refuses all later calls with ENOSYS, because it can't
# know what they do.
_LAST = 469
# Flags from linux/sched.h: the first makes a clone a thread, each of the others gives it a namespace of its own.
_CLONE_THREAD, _CLONE_NAMESPACES = 0x00010000, 0x7E020000
# AF_INET, AF_INET6, and AF_NETLINK, by which the C library finds out which of the two this machine has. Unix sockets
# aren't allowed: with them a function could command services of this machine.
_FAMILIES = (2, 10, 16)

# The instructions (linux/bpf_common.h) and verdicts (linux/seccomp.h) of filters.
_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
# The offsets of fields in struct seccomp_data.
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_MODE_FILTER = 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def is_known() -> bool:
    """Return whether this module has the numbers of this architecture's system calls."""
    return platform.machine() in _ARCHITECTURES


def install(*, network: bool, processes: bool) -> None:
    """Refuse system calls in this process, which must have set `no_new_privs`, and in all threads that it starts.

    `network` allows internet sockets, and `processes` other processes. Raises `OSError` if the kernel has no filters of
    system calls.
    """
    content = b"".join(_instructions(network=network, processes=processes))
    held = ctypes.create_string_buffer(content, len(content))
    program = _Program(len(content) // 8, ctypes.cast(held, ctypes.c_void_p))
    system.prctl(system.PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program))


def _instructions(*, network: bool, processes: bool) -> Iterator[bytes]:
    yield _instruction(_LOAD, _ARCHITECTURE)
    yield _instruction(_EQUAL, _ARCHITECTURES[platform.machine()], 1, 0)
    yield _instruction(_RETURN, _KILL)
    yield _instruction(_LOAD, _NUMBER)
    # The numbers above `_LAST` are those of later calls, and of the calls of the x32 interface, which have bit 30 set.
    yield _instruction(_GREATER, _LAST, 0, 1)
    yield _refuse(errno.ENOSYS)
    for name in _NEVER:
        yield from _refused(name, errno.EPERM)
    for name in _UNKNOWN:
        yield from _refused(name, errno.ENOSYS)
    if network:
        yield from _only("socket", _FAMILIES, errno.EACCES)
    else:
        for name in _NETWORK:
            yield from _refused(name, errno.EACCES)
    if processes:
        yield from _bits("clone", _CLONE_NAMESPACES, wanted=False)
    else:
        yield from _bits("clone", _CLONE_THREAD, wanted=True)
        for name in _PROCESSES:
            yield from _refused(name, errno.EPERM)
        for name in _OF_A_PROCESS:
            yield from _only(name, (0, os.getpid()) if name != "kill" else (os.getpid(),), errno.EPERM)
    yield _instruction(_RETURN, _ALLOW)


def _refused(name: str, code: int) -> Iterator[bytes]:
    number = _number(name)
    if number is not None:
        yield _instruction(_EQUAL, number, 0, 1)
        yield _refuse(code)


def _only(name: str, values: tuple[int, ...], code: int) -> Iterator[bytes]:
    """Yield instructions that allow a call for these values of its first argument only."""
    yield _instruction(_EQUAL, _number(name) or 0, 0, len(values) + 3)
    yield _instruction(_LOAD, _FIRST_ARGUMENT)
    for position, value in enumerate(values):
        yield _instruction(_EQUAL, value, len(values) - position, 0)
    yield _refuse(code)
    yield _instruction(_RETURN, _ALLOW)


def _bits(name: str, mask: int, *, wanted: bool) -> Iterator[bytes]:
    """Yield instructions that allow a call only if a bit of the mask is set in its first argument, or if none is."""
    yield _instruction(_EQUAL, _number(name) or 0, 0, 4)
    yield _instruction(_LOAD, _FIRST_ARGUMENT)
    yield _instruction(_ANY_BIT, mask, *((1, 0) if wanted else (0, 1)))
    yield _refuse(errno.EPERM)
    yield _instruction(_RETURN, _ALLOW)


def _number(name: str) -> int | None:
    return _NUMBERS[name][0 if platform.machine() == "x86_64" else 1]


def _refuse(code: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | code)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
