"""Connections that a process or a thread can't open by itself: the platform looks at each (Linux 5.6 and later).

Seccomp, Linux's filter of system calls, stops a thread in `connect` and tells whoever holds the *listener*. All threads
and processes that such a thread starts are under the same filter, so no library can open a connection by itself. A call
that goes on after a look at it could have another address by then, since other threads may change it. So none goes on:
the platform takes the socket (`pidfd_getfd`) and connects it to the address at which it has looked.

https://docs.kernel.org/userspace-api/seccomp_filter.html#userspace-notification
"""

import ctypes
import errno
import fcntl
import os
import platform
import select
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import structlog

from caraway.process.confinement import system

LOG = structlog.get_logger(__name__)

# Returns why an address and a port may not be reached; empty if they may.
Refusal = Callable[[str, int], str]

# By architecture: the kernel's code of it, and the numbers of the calls `seccomp` and `connect`. The numbers of the
# other calls are the same on both.
_CALLS = {"x86_64": (0xC000003E, 317, 42), "aarch64": (0xC00000B7, 277, 203)}
_IO_URING, _TAKE_DESCRIPTOR = 425, 438
# The instructions and verdicts of filters (linux/bpf_common.h, linux/seccomp.h), and the offsets of its data.
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ASK, _ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4
_SET_FILTER, _NEW_LISTENER = 1, 8
# struct seccomp_notif: an id, the thread, flags, and the call with its six arguments. Its answer, struct
# seccomp_notif_resp: the id, a value, an error, and flags.
_QUESTION, _ANSWER, _ID = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI"), struct.Struct("=Q")
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
# The longest address of a socket, struct sockaddr_storage.
_LONGEST = 128
# The connections of a process that are opened at a time: a socket that waits until it is connected takes a thread.
_AT_ONCE = 16


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def listener() -> int:
    """Put this thread, and all that it starts, under the filter; return the descriptor at which the kernel asks.

    Raises `OSError` if this system can't do that.
    """
    if platform.system() != "Linux" or platform.machine() not in _CALLS:
        raise OSError(errno.ENOSYS, "it needs Linux on x86-64 or ARM")
    architecture, seccomp, connect = _CALLS[platform.machine()]
    content = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (_LOAD, 0, 0, _ARCHITECTURE),
            (_EQUAL, 1, 0, architecture),
            (_RETURN, 0, 0, _ERRNO | errno.EPERM),
            (_LOAD, 0, 0, _NUMBER),
            (_EQUAL, 0, 1, connect),
            (_RETURN, 0, 0, _ASK),
            (_EQUAL, 0, 1, _IO_URING),
            (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
            (_RETURN, 0, 0, _ALLOW),
        )
    )
    held = ctypes.create_string_buffer(content, len(content))
    program = _Program(len(content) // 8, ctypes.cast(held, ctypes.c_void_p))
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    return system.syscall(seccomp, _SET_FILTER, _NEW_LISTENER, ctypes.byref(program))


def answer(listening: int, refusal: Refusal) -> None:
    """Answer the kernel's questions, in a thread, for as long as a thread or process is under the filter.

    Args:
        listening: The descriptor of `listener`, which is closed at the end.
        refusal: Decides about the addresses; it is called in several threads.
    """
    threading.Thread(target=_serve, args=(listening, refusal), name="connector gate", daemon=True).start()


def _serve(listening: int, refusal: Refusal) -> None:
    poller = select.poll()
    poller.register(listening, select.POLLIN)
    places = threading.Semaphore(_AT_ONCE)
    try:
        while True:
            ((_, events),) = poller.poll()
            if not events & select.POLLIN:
                return
            question = bytearray(_QUESTION.size)
            try:
                fcntl.ioctl(listening, _RECEIVE, question)
            except OSError:
                # The thread was interrupted before its question was read; it asks again.
                continue
            places.acquire()
            asked = (listening, bytes(question), refusal, places)
            threading.Thread(target=_decide, args=asked, name="connector gate", daemon=True).start()
    finally:
        # The threads that still answer need the descriptor.
        for _ in range(_AT_ONCE):
            places.acquire()
        os.close(listening)


def _decide(listening: int, question: bytes, refusal: Refusal, places: threading.Semaphore) -> None:
    number, thread, _, _, _, _, descriptor, at, length, *_ = _QUESTION.unpack(question)
    code = errno.EACCES
    try:
        address = _address(thread, at, min(length, _LONGEST))
        # After this it is sure that the memory was that of the thread which asks.
        fcntl.ioctl(listening, _IS_VALID, _ID.pack(number))
        code = _refused(address, refusal) or _connected(thread, descriptor, address)
    except OSError as error:
        # A thread that was interrupted, or has ended, doesn't ask any more.
        if error.errno not in {errno.ENOENT, errno.ESRCH}:
            LOG.warning("a connection couldn't be checked, and is refused", error=str(error))
    finally:
        try:
            fcntl.ioctl(listening, _SEND, bytearray(_ANSWER.pack(number, 0, -code, 0)))
        except OSError as error:
            if error.errno != errno.ENOENT:
                LOG.warning("a connection couldn't be answered for", error=str(error))
        places.release()


def _address(thread: int, at: int, length: int) -> bytes:
    """Read an address from the memory of a thread."""
    memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(memory, length, at)
    finally:
        os.close(memory)


def _connected(thread: int, descriptor: int, address: bytes) -> int:
    """Connect the socket of a thread; return the error of `connect`, 0 if there is none."""
    status = Path(f"/proc/{thread}/status").read_text(encoding="ascii")
    process = os.pidfd_open(next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Tgid:")))
    try:
        taken = system.syscall(_TAKE_DESCRIPTOR, process, descriptor, 0)
    finally:
        os.close(process)
    try:
        system.checked(system.libc().connect(taken, address, len(address)))
    except OSError as error:
        return error.errno or errno.EACCES
    finally:
        os.close(taken)
    return 0


def _refused(address: bytes, refusal: Refusal) -> int:
    """Return the error for an address, struct sockaddr; 0 if it may be reached."""
    if len(address) < 2:
        return errno.EINVAL
    (family,) = struct.unpack_from("=H", address)
    if family in {socket.AF_UNSPEC, socket.AF_NETLINK}:
        # The C library tests the order of a name's addresses by sockets that send nothing.
        return 0
    if family == socket.AF_INET and len(address) >= 8:
        host = socket.inet_ntop(family, address[4:8])
    elif family == socket.AF_INET6 and len(address) >= 24:
        host = socket.inet_ntop(family, address[8:24])
    else:
        return errno.EACCES
    (port,) = struct.unpack_from("!H", address, 2)
    # The C library tries the addresses of a name with port 0, to which nothing is sent.
    return errno.EACCES if port and refusal(host, port) else 0
