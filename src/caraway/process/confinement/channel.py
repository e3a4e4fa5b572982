"""Messages between the platform and a process of users' functions, as bytes after their length, over a Unix socket.

Messages of the platform, the more trusted side, are pickled. Messages of a process of users' functions must never be
unpickled, since a pickle can run code where it is read; these are MessagePack (`caraway.process.confinement.values`).

Either end may wait in a thread, or without blocking an event loop.
"""

import asyncio
import socket
import time
from contextlib import suppress
from struct import Struct

# The header of a message: its length in bytes.
HEAD = Struct("!Q")
# Each read asks for at least this many bytes; a message of a few rows takes one read.
PIECE = 1 << 16
# The most bytes of a long message that one read asks for. The system hands over some hundred kB at a time.
LARGE = 1 << 20
# The largest message that the platform accepts. A query has at most some 100,000 rows, and a batch of a pipeline
# 10,000, so a process that sends more than this is filling the platform's memory.
LARGEST = 1 << 30


class Channel:
    """One end of a connection, for one caller at a time."""

    __slots__ = ("_received", "_socket", "largest")

    def __init__(self, end: socket.socket) -> None:
        """Use an end of a pair of sockets."""
        self._socket = end
        self._received = bytearray()
        self.largest = LARGEST
        """The bytes of the largest message that is accepted."""

    def send(self, message: bytes, deadline: float | None = None) -> None:
        """Send a message; `deadline` is a time of the monotonic clock.

        Raises `TimeoutError` if the receiver doesn't read the message in time, and `OSError` if its end is closed.
        """
        self._wait_until(deadline)
        self._socket.sendall(_frame(message))

    def receive(self, deadline: float | None = None) -> bytes:
        """Wait for a message; `deadline` is a time of the monotonic clock.

        Raises:
            TimeoutError: No message comes in time.
            EOFError: The other end is closed, or sends a message larger than `largest`.
        """
        while True:
            message = self._next()
            if message is not None:
                return message
            self._wait_until(deadline)
            self._take(self._socket.recv(max(PIECE, self._missing())))

    async def send_async(self, message: bytes) -> None:
        """Send a message without blocking the event loop; see `send`."""
        frame = _frame(message)
        self._socket.setblocking(False)  # noqa: FBT003 (a function of the library)
        try:
            sent = self._socket.send(frame)
        except BlockingIOError:
            sent = 0
        if sent < len(frame):
            await asyncio.get_running_loop().sock_sendall(self._socket, memoryview(frame)[sent:])

    async def receive_async(self) -> bytes:
        """Wait for a message without blocking the event loop; see `receive`."""
        loop = asyncio.get_running_loop()
        self._socket.setblocking(False)  # noqa: FBT003
        while True:
            message = self._next()
            if message is not None:
                return message
            self._take(await loop.sock_recv(self._socket, PIECE))

    def send_descriptor(self, descriptor: int | None) -> None:
        """Send a file descriptor, or the word that there is none."""
        socket.send_fds(self._socket, [b"."], [] if descriptor is None else [descriptor])

    def receive_descriptor(self, deadline: float | None = None) -> int | None:
        """Wait for what `send_descriptor` sends, before any message; raises as `receive` does."""
        self._wait_until(deadline)
        content, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        if not content:
            raise EOFError
        return descriptors[0] if descriptors else None

    def shut(self) -> None:
        """End the connection, so that a thread which waits for a message gets `EOFError`; `close` comes later."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _wait_until(self, deadline: float | None) -> None:
        if deadline is None:
            self._socket.settimeout(None)
            return
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)

    def _take(self, piece: bytes) -> None:
        if not piece:
            raise EOFError
        self._received += piece

    def _missing(self) -> int:
        """Return how many bytes of the next message are missing, `LARGE` at most; 0 if that isn't known."""
        received = self._received
        if len(received) < HEAD.size:
            return 0
        return min(int(HEAD.unpack_from(received)[0]) + HEAD.size - len(received), LARGE)

    def _next(self) -> bytes | None:
        received = self._received
        if len(received) < HEAD.size:
            return None
        length: int = HEAD.unpack_from(received)[0]
        if length > self.largest:
            raise EOFError(f"a message of {length} bytes")
        end = HEAD.size + length
        if len(received) < end:
            return None
        message = bytes(memoryview(received)[HEAD.size : end])
        del received[:end]
        return message


def _frame(message: bytes) -> bytes:
    return HEAD.pack(len(message)) + message
