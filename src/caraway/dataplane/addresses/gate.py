"""Threads whose connections the kernel hands over for a decision (Linux 5.0 and later).

Seccomp, Linux's filter of system calls, stops a thread in `connect` and tells another one, which looks at the address
and has the call go on or fail. All threads that such a thread starts are under the same filter, so a library in C can't
open a connection by itself. https://docs.kernel.org/userspace-api/seccomp_filter.html#userspace-notification
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
from typing import TypeVar

import structlog

LOG = structlog.get_logger(__name__)

T = TypeVar("T")
# Returns why an address and a port may not be reached; empty if they may.
Refusal = Callable[[str, int], str]

# By architecture: the kernel's code of it, and the numbers of the calls `seccomp` and `connect`.
_CALLS = {"x86_64": (0xC000003E, 317, 42), "aarch64": (0xC00000B7, 277, 203)}
_IO_URING = 425
# The instructions and verdicts of filters (linux/bpf_common.h, linux/seccomp.h), and the offsets of its data.
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ASK, _ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4
_NO_NEW_PRIVILEGES, _SET_FILTER, _NEW_LISTENER = 38, 1, 8
# struct seccomp_notif: an id, the thread, flags, and the call with its six arguments. Its answer, struct
# seccomp_notif_resp: the id, a value, an error, and flags.
_QUESTION, _ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_RECEIVE, _SEND, _GO_ON = 0xC0502100, 0xC0182101, 1
# The longest address of a socket, struct sockaddr_storage.
_LONGEST = 128


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def run(make: Callable[[], T], refusal: Refusal) -> T:
    """Return what `make` returns, which runs in a thread that connects only to what `refusal` doesn't refuse.

    On a system that can't do that, it runs without a limit, which is logged.
    """
    made: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            _guard(refusal)
            made.append(make())
        except BaseException as error:  # noqa: BLE001 (it is raised in the thread that waits)
            errors.append(error)

    thread = threading.Thread(target=work, name="connector opening", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return made[0]


def _guard(refusal: Refusal) -> None:
    """Have the kernel ask before this thread, or one that it starts, connects."""
    try:
        listener = _listener()
    except OSError as error:
        LOG.warning(
            "connections of Kafka's client can't be checked on this system, so brokers may lead it to any address",
            error=str(error),
        )
        return
    threading.Thread(target=_answer, args=(listener, refusal), name="connector gate", daemon=True).start()


def _listener() -> int:
    """Put this thread under the filter, and return the descriptor at which the kernel asks."""
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
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs is refused")
    listener = int(library.syscall(seccomp, _SET_FILTER, _NEW_LISTENER, ctypes.byref(program)))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp's listener is refused")
    return listener


def _answer(listener: int, refusal: Refusal) -> None:
    """Answer the kernel's questions for as long as a thread is under the filter."""
    poller = select.poll()
    poller.register(listener, select.POLLIN)
    # Memory is read through a file, since that of a thread which was interrupted may be gone.
    memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        while True:
            ((_, events),) = poller.poll()
            if not events & select.POLLIN:
                return
            question = bytearray(_QUESTION.size)
            try:
                fcntl.ioctl(listener, _RECEIVE, question)
            except OSError:
                # The thread was interrupted before its question was read; it asks again.
                continue
            number, _, _, _, _, _, _, at, length, *_ = _QUESTION.unpack(question)
            code = errno.EACCES
            try:
                code = _code(os.pread(memory, min(length, _LONGEST), at), refusal)
            except OSError:
                LOG.exception("a connection couldn't be checked, and is refused")
            finally:
                answer = _ANSWER.pack(number, 0, -code, 0 if code else _GO_ON)
                try:
                    fcntl.ioctl(listener, _SEND, bytearray(answer))
                except OSError:
                    # The thread was interrupted, and asks again.
                    continue
    finally:
        os.close(memory)
        os.close(listener)


def _code(address: bytes, refusal: Refusal) -> int:
    """Return the error for an address, struct sockaddr; 0 if it may be reached."""
    (family,) = struct.unpack_from("=H", address)
    if family == socket.AF_INET:
        host = socket.inet_ntop(family, address[4:8])
    elif family == socket.AF_INET6:
        host = socket.inet_ntop(family, address[8:24])
    elif family in {socket.AF_UNIX, socket.AF_UNSPEC, socket.AF_NETLINK}:
        # The C library asks the cache of names, and tests the order of a name's addresses by sockets that send
        # nothing.
        return 0
    else:
        return errno.EACCES
    (port,) = struct.unpack_from("!H", address, 2)
    # The C library tries the addresses of a name with port 0, to which nothing is sent.
    return errno.EACCES if port and refusal(host, port) else 0
