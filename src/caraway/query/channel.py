"""Messages between this process and one that works for it: pickles behind their length, over a Unix socket.

Either end may wait in a thread, or on an event loop, which has other things to do until the answer comes.
"""

import asyncio
import pickle
import socket
import time
from struct import Struct

# The length of what follows.
HEAD = Struct("!Q")
# A message of a few rows comes in one piece.
PIECE = 1 << 16


class Channel:
    """One end. It is for one caller at a time."""

    __slots__ = ("_received", "_socket")

    def __init__(self, end: socket.socket) -> None:
        """Use an end of a pair of sockets."""
        self._socket = end
        self._received = bytearray()

    def send(self, message: object, deadline: float | None = None) -> None:
        """Send a message, until a time of the monotonic clock.

        Raises:
            TimeoutError: The other end doesn't take it in time.
            OSError: The other end is closed.
        """
        self._wait_until(deadline)
        self._socket.sendall(_frame(message))

    def receive(self, deadline: float | None = None) -> object:
        """Wait for a message, until a time of the monotonic clock.

        Raises:
            TimeoutError: None comes in time.
            EOFError: The other end is closed.
        """
        while True:
            found, message = self._next()
            if found:
                return message
            self._wait_until(deadline)
            self._take(self._socket.recv(PIECE))

    async def send_soon(self, message: object) -> None:
        """Send a message without holding the event loop; see `send`."""
        frame = _frame(message)
        self._socket.setblocking(False)  # noqa: FBT003 (a function of the library)
        try:
            sent = self._socket.send(frame)
        except BlockingIOError:
            sent = 0
        if sent < len(frame):
            await asyncio.get_running_loop().sock_sendall(self._socket, memoryview(frame)[sent:])

    async def receive_soon(self) -> object:
        """Wait for a message without holding the event loop; see `receive`."""
        loop = asyncio.get_running_loop()
        self._socket.setblocking(False)  # noqa: FBT003
        while True:
            found, message = self._next()
            if found:
                return message
            self._take(await loop.sock_recv(self._socket, PIECE))

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

    def _next(self) -> tuple[bool, object]:
        received = self._received
        if len(received) < HEAD.size:
            return False, None
        end = HEAD.size + HEAD.unpack_from(received)[0]
        if len(received) < end:
            return False, None
        with memoryview(received)[HEAD.size : end] as content:
            message = pickle.loads(content)  # noqa: S301 (what we sent ourselves, or a process of ours)
        del received[:end]
        return True, message


def _frame(message: object) -> bytes:
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return HEAD.pack(len(content)) + content
