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
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from caraway.process.confinement import system

LOG = structlog.get_logger(__name__)

# A function that returns why an address and a port may not be reached; an empty text if they may.
Refusal = Callable[[str, int], str]

# For each architecture: the kernel's code for it, and the numbers of the system calls `seccomp` and `connect`. The
# calls `io_uring_setup` and `pidfd_getfd` below have the same numbers on both.
_CALLS = {"x86_64": (0xC000003E, 317, 42), "aarch64": (0xC00000B7, 277, 203)}
_IO_URING, _TAKE_DESCRIPTOR = 425, 438
# The instructions and verdicts of filters (linux/bpf_common.h, linux/seccomp.h), the offsets of two fields of struct
# seccomp_data, and the numbers by which `seccomp` installs a filter.
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ASK, _ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4
_SET_FILTER, _NEW_LISTENER = 1, 8
# A question of the kernel, struct seccomp_notif: an id, the thread, flags, and the call with its six arguments. The
# answer, struct seccomp_notif_resp: the id, a value, an error, and flags. Then the ioctls of a listener.
_QUESTION, _ANSWER, _ID = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI"), struct.Struct("=Q")
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
# The longest address of a socket, struct sockaddr_storage.
_LONGEST = 128
# The most connections of a process that are being opened at a time. At this number the gate stops reading questions, so
# threads that ask for further connections wait.
_AT_ONCE = 64
# The seconds that a thread waits for a connection. Linux itself waits for two minutes, and for hours if a socket is set
# so.
CONNECT_S = 30.0
# Milliseconds between two looks of the platform whether threads still wait for their connections.
_LOOK_MS = 500
# The errors of `connect` on a socket that doesn't block: this call has begun to connect the socket, or an earlier one
# has.
_BEGUN = {errno.EINPROGRESS, errno.EALREADY}
# struct timeval: seconds and microseconds.
_TIME = struct.Struct("@ll")


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


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A thread that waits until its socket is connected, as the kernel has it wait if the socket blocks."""

    question: int
    address: bytes
    deadline: float
    late: int


class Gate:
    """Opens the connections of a process, and of all that it starts, in a thread that ends with the last of them.

    No call of the thread waits for another machine: it begins connections and has the kernel tell when they are there.
    """

    def __init__(self, listening: int, refusal: Refusal) -> None:
        """Begin to answer the kernel's questions.

        Args:
            listening: The descriptor of `listener`, which is closed at the end.
            refusal: Decides about the addresses.

        Raises:
            OSError: No thread can be started.
        """
        self._listening, self._refusal = listening, refusal
        # The sockets that aren't connected yet, by their descriptors in this process.
        self._waiting: dict[int, _Waiting] = {}
        self._connecting: int | None = None
        self._lock = threading.Lock()
        try:
            threading.Thread(target=self._serve, name="connector gate", daemon=True).start()
        except RuntimeError as error:
            os.close(listening)
            raise OSError(errno.EAGAIN, f"its connections can't be opened: {error}") from error

    def end(self) -> None:
        """Wait for no connection any more; the process has ended.

        Another thread of it may have made a socket block again just before `connect`. Nothing but this ends that call.
        """
        with self._lock:
            if self._connecting is not None:
                _give_up(self._connecting)

    def _serve(self) -> None:
        try:
            while True:
                poller = select.poll()
                poller.register(self._listening, select.POLLIN if len(self._waiting) < _AT_ONCE else 0)
                for taken in self._waiting:
                    poller.register(taken, select.POLLOUT)
                events = dict(poller.poll(_LOOK_MS if self._waiting else None))
                asked = events.pop(self._listening, 0)
                for taken in list(self._waiting):
                    self._look(taken, ready=taken in events)
                if asked & select.POLLIN:
                    self._decide()
                elif asked:
                    return
        finally:
            for each in (*self._waiting, self._listening):
                os.close(each)

    def _look(self, taken: int, *, ready: bool) -> None:
        """Answer a thread that waits for a socket, if there is an answer."""
        waiting = self._waiting[taken]
        code: int | None = None
        if not self._is_asked(waiting.question):
            # The thread was interrupted and waits no longer. The kernel goes on connecting its socket.
            code = errno.EINTR
        elif ready:
            # The attempt to connect is over, and a further call of `connect` returns its result. If that call begins a
            # new attempt instead, the process has disconnected the socket meanwhile, so its own call fails.
            code = self._connected(taken, waiting.address, blocks=True)
            code = errno.ECONNABORTED if code in _BEGUN else code
        elif time.monotonic() > waiting.deadline:
            code = waiting.late
            if code == errno.ETIMEDOUT:
                _give_up(taken)
        if code is not None:
            del self._waiting[taken]
            os.close(taken)
            self._answer(waiting.question, code)

    def _decide(self) -> None:
        question = bytearray(_QUESTION.size)
        try:
            fcntl.ioctl(self._listening, _RECEIVE, question)
        except OSError:
            # The thread was interrupted before its question was read. If it calls `connect` again, a new question
            # comes.
            return
        number, thread, _, _, _, _, descriptor, at, length, *_ = _QUESTION.unpack(question)
        code: int | None = errno.EACCES
        try:
            address = _address(thread, at, min(length, _LONGEST))
            code = _refused(address, self._refusal)
            if code is None:
                code = self._begun(number, thread, descriptor, address)
        except Exception as error:  # noqa: BLE001 (the thread also answers for other connections)
            # ENOENT and ESRCH mean that the thread was interrupted or has ended, so that it doesn't wait for an answer
            # any more. These two errors aren't logged.
            if not isinstance(error, OSError) or error.errno not in {errno.ENOENT, errno.ESRCH}:
                LOG.warning("a connection couldn't be checked, and is refused", error=str(error))
        if code is not None:
            self._answer(number, code)

    def _begun(self, number: int, thread: int, descriptor: int, address: bytes) -> int | None:
        """Begin to connect the socket of a thread; return the result, None if the thread waits for it."""
        taken = _taken(thread, descriptor)
        code: int | None = errno.ENOENT
        try:
            # The kernel may give the number of a thread that has ended to another thread. But if the question still
            # stands, the thread has lived all the while, so the socket and the address are those of its own process.
            if self._is_asked(number):
                blocks = os.get_blocking(taken)
                code = self._connected(taken, address, blocks=blocks)
                if blocks and code in _BEGUN:
                    self._waiting[taken] = _Waiting(number, address, *_end_of_wait(taken, code))
                    code = None
        finally:
            if code is not None:
                os.close(taken)
        return code

    def _connected(self, taken: int, address: bytes, *, blocks: bool) -> int:
        """Connect a socket as far as that goes without waiting; return the error, 0 if there is none.

        The process sees a socket that `blocks` not block for some microseconds, while its thread is in `connect`.
        """
        with self._lock:
            self._connecting = taken
        try:
            os.set_blocking(taken, False)
            system.checked(system.libc().connect(taken, address, len(address)))
        except OSError as error:
            return error.errno or errno.EACCES
        finally:
            with self._lock:
                self._connecting = None
            if blocks:
                os.set_blocking(taken, True)
        return 0

    def _is_asked(self, number: int) -> bool:
        """Return whether a thread still waits for the answer to its question."""
        try:
            fcntl.ioctl(self._listening, _IS_VALID, _ID.pack(number))
        except OSError:
            return False
        return True

    def _answer(self, number: int, code: int) -> None:
        try:
            fcntl.ioctl(self._listening, _SEND, bytearray(_ANSWER.pack(number, 0, -code, 0)))
        except OSError as error:
            if error.errno != errno.ENOENT:
                LOG.warning("a connection couldn't be answered for", error=str(error))


def _address(thread: int, at: int, length: int) -> bytes:
    """Read an address from the memory of a thread."""
    memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(memory, length, at)
    finally:
        os.close(memory)


def _taken(thread: int, descriptor: int) -> int:
    """Return a descriptor of this process for the socket of a thread."""
    status = Path(f"/proc/{thread}/status").read_text(encoding="ascii")
    process = os.pidfd_open(next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Tgid:")))
    try:
        return system.syscall(_TAKE_DESCRIPTOR, process, descriptor, 0)
    finally:
        os.close(process)


def _end_of_wait(taken: int, begun: int) -> tuple[float, int]:
    """Return until when a thread waits for a socket, and the error after that; `begun` at a time that it has chosen."""
    with socket.socket(fileno=os.dup(taken)) as one:
        seconds, micros = _TIME.unpack(one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.size))
    own = seconds + micros / 1e6
    if 0 < own < CONNECT_S:
        return time.monotonic() + own, begun
    return time.monotonic() + CONNECT_S, errno.ETIMEDOUT


def _give_up(taken: int) -> None:
    """End an attempt to connect. Linux 6.4 to 6.6 end one in whose call a thread waits after its next message only."""
    with socket.socket(fileno=os.dup(taken)) as one, suppress(OSError):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, 1)
        one.shutdown(socket.SHUT_RDWR)
        # Reading the socket's error removes it. Otherwise the process would find this error on the socket later,
        # besides the one with which its call of `connect` is answered.
        one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _refused(address: bytes, refusal: Refusal) -> int | None:
    """Return the answer for an address, struct sockaddr, with which nothing is connected; None if it may be."""
    if len(address) < 2:
        return errno.EINVAL
    (family,) = struct.unpack_from("=H", address)
    if family == socket.AF_NETLINK:
        # Programs ask the kernel about addresses by such a socket, which works without a connection. A socket that the
        # platform connects would get the platform's rights. So it isn't connected, and the call succeeds.
        return 0
    if family == socket.AF_UNSPEC:
        # An address of this family disconnects a socket. The C library does so while it sorts the addresses of a name:
        # it connects one socket to each of them in turn, which sends nothing.
        return None
    if family == socket.AF_INET and len(address) >= 8:
        host = socket.inet_ntop(family, address[4:8])
    elif family == socket.AF_INET6 and len(address) >= 24:
        host = socket.inet_ntop(family, address[8:24])
    else:
        return errno.EACCES
    (port,) = struct.unpack_from("!H", address, 2)
    # While the C library sorts the addresses of a name, it connects to them with port 0, which sends nothing. So port 0
    # is never refused.
    return errno.EACCES if port and refusal(host, port) else None
