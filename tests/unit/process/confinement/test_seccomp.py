"""Tests of the filter of system calls as a program, for all architectures and policies."""

import errno
import os
import platform
import re
import struct
from pathlib import Path

import pytest

from caraway.process.confinement import seccomp

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
TABLES = (
    seccomp._ALLOWED,
    seccomp._LIMITED,
    seccomp._NETWORK,
    seccomp._SERVERS,
    seccomp._PROCESSES,
    seccomp._UNKNOWN,
)
ALLOWED = "allowed"
UNSUPPORTED = errno.errorcode[errno.EOPNOTSUPP]
LATEST = seccomp._LAST

# The numbers of calls that change files beside their content, look past their permissions, reach other processes, or
# administer the kernel: on x86-64 and on aarch64.
HARMFUL = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "capset": (126, 91),
    "chmod": (90, None),
    "chown": (92, None),
    "chroot": (161, 51),
    "fallocate": (285, 47),
    "fanotify_init": (300, 262),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "file_setattr": (469, 469),
    "fremovexattr": (199, 16),
    "fsconfig": (431, 431),
    "fsetxattr": (190, 7),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "ftruncate": (77, 46),
    "futimesat": (261, None),
    "init_module": (175, 105),
    "io_setup": (206, 0),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "kcmp": (312, 272),
    "keyctl": (250, 219),
    "landlock_restrict_self": (446, 446),
    "lchown": (94, None),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "memfd_secret": (447, 447),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "seccomp": (317, 277),
    "semget": (64, 190),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "setresuid": (117, 147),
    "setuid": (105, 146),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "shmget": (29, 194),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "tkill": (200, 130),
    "truncate": (76, 45),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
}


class Filter:
    """The filter on an architecture, interpreted as the kernel does it."""

    def __init__(self, machine: str, *, network: bool = False, processes: bool = False) -> None:
        """Take the program; `platform.machine` must return this architecture."""
        self._architecture = seccomp._ARCHITECTURES[machine]
        self._program = list(seccomp._instructions(network=network, processes=processes))

    def __call__(self, number: int, *arguments: int) -> str:
        """Return the verdict on a call: "allowed", the name of its error, or "killed"."""
        data = struct.pack("<II8x6Q", number, self._architecture, *arguments, *[0] * (6 - len(arguments)))
        held = at = 0
        while True:
            code, if_true, if_false, value = struct.unpack("=HBBI", self._program[at])
            at += 1
            match code:
                case seccomp._LOAD:
                    held = struct.unpack_from("<I", data, value)[0]
                case seccomp._AND:
                    held &= value
                case seccomp._JUMP:
                    at += value
                case seccomp._EQUAL:
                    at += if_true if held == value else if_false
                case seccomp._GREATER:
                    at += if_true if held > value else if_false
                case seccomp._RETURN if value == seccomp._ALLOW:
                    return ALLOWED
                case seccomp._RETURN if value == seccomp._KILL:
                    return "killed"
                case seccomp._RETURN:
                    return errno.errorcode[value & 0xFFFF]
                case _:
                    raise AssertionError(code)


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    monkeypatch.setattr(platform, "machine", lambda: name)
    return name


@pytest.mark.parametrize("rights", [False, True])
def test_harmful_calls_are_refused_whatever_the_rights(machine: str, *, rights: bool) -> None:
    verdict = Filter(machine, network=rights, processes=rights)
    column = list(HEADERS).index(machine)
    for name, numbers in HARMFUL.items():
        if numbers[column] is not None:
            assert verdict(numbers[column] or 0) == "EPERM", name
    # The kernel doesn't have the first two numbers yet, and the others are calls of the x32 interface.
    for later in (LATEST + 1, 1000, 0x40000000, 0x40000000 | 90):
        assert verdict(later) == "ENOSYS"


def test_no_call_is_allowed_that_no_table_has(machine: str) -> None:
    verdict = Filter(machine, network=True, processes=True)
    known = {number for table in TABLES for number in seccomp._numbers(table).values()}
    assert {number for number in range(LATEST + 1) if verdict(number) != "EPERM"} <= known


def test_sockets_and_processes_depend_on_the_rights(machine: str) -> None:
    number = {name: of for table in TABLES for name, of in seccomp._numbers(table).items()}
    few, many = Filter(machine), Filter(machine, network=True, processes=True)
    thread, namespace = 0x3D0F00, 0x10000000
    for name, arguments, with_few, with_many in (
        ("socket", (2, 1), "EACCES", ALLOWED),
        ("socket", (10, 2 | 0x80800, 17), "EACCES", ALLOWED),
        ("socket", (1, 1), "EACCES", "EACCES"),
        ("connect", (), "EACCES", ALLOWED),
        ("bind", (), "EACCES", ALLOWED),
        ("execve", (), "EPERM", ALLOWED),
        ("clone", (thread,), ALLOWED, ALLOWED),
        ("clone", (17,), "EPERM", ALLOWED),
        ("clone", (thread | namespace,), ALLOWED, "EPERM"),
        ("clone3", (), "ENOSYS", "ENOSYS"),
        ("kill", (os.getpid(), 9), ALLOWED, ALLOWED),
        ("kill", (1, 9), "EPERM", ALLOWED),
        ("kill", (2**32 - 1, 9), "EPERM", ALLOWED),
        ("prlimit64", (0,), ALLOWED, ALLOWED),
        ("prlimit64", (os.getpid(),), ALLOWED, "EPERM"),
        ("prlimit64", (1,), "EPERM", "EPERM"),
        ("prlimit64", (2**32 | 1,), "EPERM", "EPERM"),
        ("sched_setaffinity", (1,), "EPERM", "EPERM"),
        ("sched_setattr", (1,), "EPERM", "EPERM"),
        ("sched_setparam", (1,), "EPERM", "EPERM"),
        ("sched_setscheduler", (1,), "EPERM", "EPERM"),
        ("sched_setscheduler", (0,), ALLOWED, ALLOWED),
        ("openat", (0, 0, os.O_WRONLY | os.O_TRUNC), ALLOWED, ALLOWED),
        ("openat", (0, 0, os.O_RDONLY | os.O_TRUNC), "EPERM", "EPERM"),
        ("openat", (0, 0, 3), "EPERM", "EPERM"),
        ("openat", (0, 0, 2**32 | 3), "EPERM", "EPERM"),
        ("mmap", (0, 0, 0, 0x22), ALLOWED, ALLOWED),
        ("mmap", (0, 0, 0, 0x21), UNSUPPORTED, UNSUPPORTED),
        ("mmap", (0, 0, 0, 0x23), UNSUPPORTED, UNSUPPORTED),
        ("mmap", (0, 0, 0, 0x01), ALLOWED, ALLOWED),
        ("socketpair", (1, 1 | 0x80800), ALLOWED, ALLOWED),
        ("socketpair", (1, 2), "EACCES", "EACCES"),
        ("socketpair", (1, 5), "EACCES", "EACCES"),
        ("prctl", (1,), "EPERM", "EPERM"),
        ("prctl", (15,), ALLOWED, ALLOWED),
    ):
        assert (few(number[name], *arguments), many(number[name], *arguments)) == (with_few, with_many), name


STREAM, DATAGRAM, RAW = 1, 2, 3


def test_no_right_allows_to_be_connected_to(machine: str) -> None:
    number = {name: of for table in TABLES for name, of in seccomp._numbers(table).items()}
    for rights in (False, True):
        verdict = Filter(machine, network=rights, processes=rights)
        for name in ("listen", "accept", "accept4"):
            assert verdict(number[name]) == "EACCES", name


@pytest.mark.parametrize("upper", [0, 1 << 32, 0xFFFFFFFF << 32])
def test_sockets_have_the_usual_protocols_only(machine: str, upper: int) -> None:
    """The kernel takes the lower half of each argument, whatever is in the upper one."""
    number = seccomp._numbers(seccomp._LIMITED)["socket"]
    verdict = Filter(machine, network=True)
    allowed = {
        (family, kind, protocol)
        for family in range(50)
        for kind in range(16)
        for protocol in (*range(140), 256, 262, 2**32 - 1)
        if verdict(number, upper | family, upper | kind, upper | protocol) == ALLOWED
    }
    kinds = (STREAM, DATAGRAM, RAW)
    internet = {(family, kind, protocol) for family in (2, 10) for kind in kinds for protocol in (0, 6, 17)}
    assert allowed == internet | {(16, kind, 0) for kind in kinds}


def test_numbers_are_the_kernels(machine: str) -> None:
    header = HEADERS[machine]
    if not header.exists():
        pytest.skip(f"the kernel's header {header} isn't installed")
    found = dict(re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", header.read_text()))
    found.setdefault("newfstatat", found.get("fstatat"))
    for table in TABLES:
        for name, number in seccomp._numbers(table).items():
            # The header may be of an older kernel than the table.
            assert str(number) == found.get(name, str(number)), name
    column = list(HEADERS).index(machine)
    for name, numbers in HARMFUL.items():
        if name in found:
            assert str(numbers[column]) == found[name], name
