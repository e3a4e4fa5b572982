"""A filter of system calls: a process may compute, use files and threads, and nothing else (Linux).

The filter lists the calls that are allowed, so that calls which nobody has thought of are refused. Landlock decides
which files a process may open; the filter refuses the calls that Landlock doesn't limit, such as those that change the
modes, owners, times and attributes of files.

https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from caraway.process.confinement import system

# The kernel's codes, from linux/audit.h, of the architectures whose system call numbers this module has.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# System calls that are allowed with all arguments. After each name come its number on x86-64, and that on the
# architectures that use Linux's generic table, such as aarch64; "-" if a call is missing there.
_ALLOWED = """
    access:21:- alarm:37:- arch_prctl:158:- brk:12:214 capget:125:90 chdir:80:49 clock_getres:229:114
    clock_gettime:228:113 clock_nanosleep:230:115 close:3:57 close_range:436:436 copy_file_range:326:285 creat:85:-
    dup2:33:- dup3:292:24 dup:32:23 epoll_create1:291:20 epoll_create:213:- epoll_ctl:233:21 epoll_pwait2:441:441
    epoll_pwait:281:22 epoll_wait:232:- eventfd2:290:19 eventfd:284:- exit:60:93 exit_group:231:94
    faccessat2:439:439 faccessat:269:48 fadvise64:221:223 fchdir:81:50 fdatasync:75:83 flock:73:32 fstat:5:80
    fstatfs:138:44 fsync:74:82 futex:202:98 futex_requeue:456:456 futex_wait:455:455 futex_waitv:449:449
    futex_wake:454:454 get_mempolicy:239:236 get_robust_list:274:100 getcpu:309:168 getcwd:79:17 getdents64:217:61
    getdents:78:- getegid:108:177 geteuid:107:175 getgid:104:176 getgroups:115:158 getitimer:36:102
    getpeername:52:205 getpgid:121:155 getpgrp:111:- getpid:39:172 getppid:110:173 getpriority:140:141
    getrandom:318:278 getresgid:120:150 getresuid:118:148 getrlimit:97:163 getrusage:98:165 getsid:124:156
    getsockname:51:204 getsockopt:55:209 gettid:186:178 gettimeofday:96:169 getuid:102:174 link:86:- linkat:265:37
    lseek:8:62 lstat:6:- madvise:28:233 map_shadow_stack:453:453 membarrier:324:283 mincore:27:232 mkdir:83:-
    mkdirat:258:34 mlock2:325:284 mlock:149:228 mprotect:10:226 mremap:25:216 msync:26:227 munlock:150:229
    munmap:11:215 nanosleep:35:101 newfstatat:262:79 pause:34:- pipe2:293:59 pipe:22:- pkey_alloc:330:289
    pkey_free:331:290 pkey_mprotect:329:288 poll:7:- ppoll:271:73 pread64:17:67 preadv2:327:286 preadv:295:69
    pselect6:270:72 pwrite64:18:68 pwritev2:328:287 pwritev:296:70 read:0:63 readahead:187:213 readlink:89:-
    readlinkat:267:78 readv:19:65 recvfrom:45:207 recvmsg:47:212 rename:82:- renameat2:316:276 renameat:264:38
    restart_syscall:219:128 rmdir:84:- rseq:334:293 rt_sigaction:13:134 rt_sigpending:127:136 rt_sigprocmask:14:135
    rt_sigreturn:15:139 rt_sigsuspend:130:133 rt_sigtimedwait:128:137 sched_get_priority_max:146:125
    sched_get_priority_min:147:126 sched_getaffinity:204:123 sched_getattr:315:275 sched_getparam:143:121
    sched_getscheduler:145:120 sched_rr_get_interval:148:127 sched_yield:24:124 select:23:- sendfile:40:71
    set_robust_list:273:99 set_tid_address:218:96 setitimer:38:103 setsockopt:54:208
    shutdown:48:210 sigaltstack:131:132 signalfd4:289:74 signalfd:282:- splice:275:76 stat:4:- statfs:137:43
    statx:332:291 symlink:88:- symlinkat:266:36 sync_file_range:277:84 sysinfo:99:179 tee:276:77 time:201:-
    timer_create:222:107 timer_delete:226:111 timer_getoverrun:225:109 timer_gettime:224:108 timer_settime:223:110
    timerfd_create:283:85 timerfd_gettime:287:87 timerfd_settime:286:86 times:100:153 umask:95:166 uname:63:160
    unlink:87:- unlinkat:263:35 vmsplice:278:75 wait4:61:260 waitid:247:95 write:1:64 writev:20:66
"""
# System calls that are allowed only with some arguments: each must satisfy all of its limits in `_limits`.
_LIMITED = """
    clone:56:220 fcntl:72:25 ioctl:16:29 kill:62:129 mmap:9:222 open:2:- openat:257:56 prctl:157:167
    prlimit64:302:261 sched_setaffinity:203:122 sched_setattr:314:274 sched_setparam:142:118
    sched_setscheduler:144:119 sendmmsg:307:269 sendmsg:46:211 sendto:44:206 socket:41:198 socketpair:53:199
    tgkill:234:131
"""
_NETWORK = """
    bind:49:200 connect:42:203 recvmmsg:299:243
"""
# Calls that accept connections, which a process that only opens connections doesn't need. Landlock alone can't refuse
# all of them: its limit of TCP ports comes with Linux 6.7, and covers neither a `listen` without `bind` nor other
# protocols, such as MPTCP.
_SERVERS = """
    accept4:288:242 accept:43:202 listen:50:201
"""
_PROCESSES = """
    execve:59:221 execveat:322:281 fork:57:- setpgid:109:154 setsid:112:157 vfork:58:-
"""
# Calls that are refused with ENOSYS, as if the kernel didn't have them, so that the C library and others fall back to
# older calls, such as `clone` in place of `clone3`.
_UNKNOWN = """
    clone3:435:435 io_uring_setup:425:425 memfd_create:319:279 openat2:437:437
"""

# The number of the last system call of Linux 6.18. The filter refuses all later calls with ENOSYS, as older kernels do.
_LAST = 469

# From linux/sched.h: the first flag makes a clone a thread, each of the others gives it a namespace of its own.
_CLONE_THREAD, _CLONE_NAMESPACES = 0x00010000, 0x7E020000
# AF_INET, AF_INET6, and AF_NETLINK, by which the C library finds out which of the two this machine has. Unix sockets
# aren't allowed: with them a function could command services of this machine.
_INTERNET, _NETLINK = (2, 10), 16
_SOCK_STREAM, _SOCK_DGRAM, _SOCK_RAW, _SOCK_TYPES = 1, 2, 3, 0xF
# The allowed protocols of internet sockets: the default one, TCP, UDP. Some others connect without a call of `connect`,
# so the addresses would not be checked.
_PROTOCOLS = (0, 6, 17)
_MAP_SHARED, _MAP_ANONYMOUS = 0x01, 0x20
_O_ACCESS, _O_TRUNC = 0x003, 0x200
# From linux/socket.h: MSG_FASTOPEN, a flag of calls that send. With it, sending opens the connection, without a call of
# `connect` whose address could be checked.
_MSG_FASTOPEN = 0x20000000
# The allowed commands of `fcntl` (linux/fcntl.h): copies of a descriptor, flags, locks, and the size of a pipe. Others
# make the kernel send signals to other processes, or break the leases of files.
_DESCRIPTORS = (*range(8), 36, 37, 38, 1027, 1030, 1032)
# The allowed requests of `ioctl` (asm-generic/ioctls.h): TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX.
# Others write to terminals, have signals sent, or change attributes of files.
_CONTROLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# The allowed operations of `prctl` (linux/prctl.h): the name of a thread, names of memory, huge pages, and reading some
# of the rights of the process.
_PROPERTIES = (2, 3, 15, 16, 23, 39, 41, 42, 0x53564D41)
_ALL_BITS = 0xFFFFFFFF

# The instructions (linux/bpf_common.h) and verdicts (linux/seccomp.h) of filters.
_LOAD, _AND, _JUMP, _EQUAL, _GREATER, _RETURN = 0x20, 0x54, 0x05, 0x15, 0x25, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
# The offsets of fields in struct seccomp_data. An argument has 8 bytes, the lower ones first.
_NUMBER, _ARCHITECTURE, _ARGUMENTS, _ARGUMENT_BYTES = 0, 4, 16, 8
_MODE_FILTER = 2


@dataclass(frozen=True, slots=True)
class _Limit:
    """The values that some bits of an argument of a call may have, or mustn't have if `refused`.

    With `only_if`, the limit is only for calls that have this value of their first argument.
    """

    call: str
    argument: int
    values: tuple[int, ...]
    bits: int = _ALL_BITS
    refused: bool = False
    code: int = errno.EPERM
    only_if: int | None = None


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def is_known() -> bool:
    """Return whether this module has the numbers of this architecture's system calls."""
    return platform.machine() in _ARCHITECTURES


def install(*, network: bool, processes: bool) -> None:
    """Refuse system calls in this process, which must have set `no_new_privs`, and in all threads that it starts.

    `network` allows connections to others, but none from them, and `processes` other processes. Raises `OSError` if the
    kernel has no filters of system calls.
    """
    content = b"".join(_instructions(network=network, processes=processes))
    held = ctypes.create_string_buffer(content, len(content))
    program = _Program(len(content) // 8, ctypes.cast(held, ctypes.c_void_p))
    system.prctl(system.PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program))


def _limits(*, network: bool, processes: bool) -> Iterator[_Limit]:
    yield _Limit("fcntl", 1, _DESCRIPTORS)
    yield _Limit("ioctl", 1, _CONTROLS)
    yield _Limit("prctl", 0, _PROPERTIES)
    # RLIMIT_DATA doesn't count memory that is shared and in no file, so such memory is refused.
    shared = _MAP_SHARED | _MAP_ANONYMOUS
    yield _Limit("mmap", 3, (shared,), bits=shared, refused=True, code=errno.EOPNOTSUPP)
    # Before Linux 6.2, Landlock doesn't know truncation. For Landlock, O_RDONLY with O_TRUNC only reads the file. The
    # access mode 3, neither reading nor writing, needs no right at all, though it can truncate the file as well.
    for call, argument in (("open", 1), ("openat", 2)):
        forbidden = (_O_TRUNC, _O_ACCESS, _O_ACCESS | _O_TRUNC)
        yield _Limit(call, argument, forbidden, bits=_O_ACCESS | _O_TRUNC, refused=True)
    # A stream socket of a pair stays connected to the other one. Sockets of other types could also send to the Unix
    # sockets of other processes.
    yield _Limit("socketpair", 1, (_SOCK_STREAM,), bits=_SOCK_TYPES, code=errno.EACCES)
    yield _Limit("socket", 0, (*_INTERNET, _NETLINK) if network else (), code=errno.EACCES)
    # Raw sockets are for netlink; a raw internet socket also needs a capability, which no process has.
    types = _SOCK_STREAM, _SOCK_DGRAM, _SOCK_RAW
    yield _Limit("socket", 1, types, bits=_SOCK_TYPES, code=errno.EACCES)
    yield _Limit("socket", 2, _PROTOCOLS, code=errno.EACCES)
    # Only the netlink protocol 0 (NETLINK_ROUTE) is allowed. Others reveal the ports and users of the machine.
    yield _Limit("socket", 2, (0,), code=errno.EACCES, only_if=_NETLINK)
    for call, argument in (("sendto", 3), ("sendmsg", 2)):
        yield _Limit(call, argument, (_MSG_FASTOPEN,), bits=_MSG_FASTOPEN, refused=True)
    fast = (_MSG_FASTOPEN,) if network else ()
    yield _Limit("sendmmsg", 3, fast, bits=_MSG_FASTOPEN, refused=network, code=errno.EACCES)
    if processes:
        yield _Limit("clone", 0, (0,), bits=_CLONE_NAMESPACES)
    else:
        yield _Limit("clone", 0, (_CLONE_THREAD,), bits=_CLONE_THREAD)
    # The first argument of these calls is the id of a process: this one's, or 0, by which most of these calls mean
    # their caller. If this process may start others, only 0 is allowed: they may outlive it, and its id can then be
    # that of another process.
    own = os.getpid()
    for call in ("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"):
        yield _Limit(call, 0, (0,) if processes else (0, own))
    if not processes:
        yield _Limit("tgkill", 0, (0, own))
        yield _Limit("kill", 0, (own,))


def _instructions(*, network: bool, processes: bool) -> Iterator[bytes]:
    yield _instruction(_LOAD, _ARCHITECTURE)
    yield _instruction(_EQUAL, _ARCHITECTURES[platform.machine()], 1, 0)
    yield _instruction(_RETURN, _KILL)
    yield _instruction(_LOAD, _NUMBER)
    # The numbers above `_LAST` are those of calls of later kernels, and those of the x32 interface, which have bit 30
    # set.
    yield _instruction(_GREATER, _LAST, 0, 1)
    yield _refuse(errno.ENOSYS)
    limited = _numbers(_LIMITED)
    for limit in _limits(network=network, processes=processes):
        if limit.call in limited:
            yield from _limited(limited[limit.call], limit)
    yield from _all(_LIMITED, _ALLOW)
    yield from _all(_ALLOWED, _ALLOW)
    yield from _all(_NETWORK, _ALLOW if network else _ERRNO | errno.EACCES)
    yield from _all(_SERVERS, _ERRNO | errno.EACCES)
    yield from _all(_PROCESSES, _ALLOW if processes else _ERRNO | errno.EPERM)
    yield from _all(_UNKNOWN, _ERRNO | errno.ENOSYS)
    yield _refuse(errno.EPERM)


def _numbers(calls: str) -> dict[str, int]:
    """Return the numbers of the calls in a table that this architecture has."""
    column = 1 if platform.machine() == "x86_64" else 2
    rows = (row.split(":") for row in calls.split())
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def _all(calls: str, verdict: int) -> Iterator[bytes]:
    for number in _numbers(calls).values():
        yield _instruction(_EQUAL, number, 0, 1)
        yield _instruction(_RETURN, verdict)


def _limited(number: int, limit: _Limit) -> Iterator[bytes]:
    """Yield the instructions that refuse a call beyond a limit. Any other call goes on, with the number loaded."""
    values = limit.values
    test = [_instruction(_LOAD, _argument(limit.argument)), _instruction(_AND, limit.bits)]
    for position, value in enumerate(values):
        to_match, to_rest = len(values) - position, 0
        test.append(_instruction(_EQUAL, value, to_match, to_rest))
    # The first instruction after the tests is for values that aren't in the list, and the next one for values that are.
    over, refuse = _instruction(_JUMP, 1), _refuse(limit.code)
    test += [over, refuse] if limit.refused else [refuse]
    if limit.only_if is not None:
        test = [
            _instruction(_LOAD, _argument(0)),
            _instruction(_EQUAL, limit.only_if, 0, len(test)),
            *test,
        ]
    yield _instruction(_EQUAL, number, 0, len(test) + 1)
    yield from test
    yield _instruction(_LOAD, _NUMBER)


def _argument(position: int) -> int:
    """Return where the lower half of an argument is. The kernel takes no other half of the limited arguments."""
    return _ARGUMENTS + position * _ARGUMENT_BYTES


def _refuse(code: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | code)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
