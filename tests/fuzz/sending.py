"""Sending messages over raw sockets, and reading what comes back."""

import re
import socket
import time
from dataclasses import dataclass

from tests.fuzz.messages import Message

# The start of each answer; no body of ours holds such a line.
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
# A complete request is answered by then: the deadlines of the server are shorter.
ANSWER_S = 90.0
# No answer is due to a request that isn't complete; the fuzzer listens for one for so long.
SILENCE_S = 0.2
# How many bytes of a message are kept, enough to recognise the request.
BEGINNING = 300


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a message: statuses in order, when it began, how long it took, how the first answer begins.

    It keeps only the beginning of the message itself: ten thousand whole ones would fill the memory.
    """

    kind: str
    size: int
    beginning: bytes
    answered: bool
    statuses: tuple[int, ...]
    begun: float
    seconds: float
    text: bytes
    number: int


def send(host: str, port: int, message: Message) -> Reply:
    """Send a message over a connection of its own, and read until the server closes it or falls silent.

    Raises:
        OSError: The server takes no connection.
    """
    begun = time.monotonic()
    received = b""
    with socket.create_connection((host, port), timeout=ANSWER_S) as connection:
        try:
            for number, piece in enumerate(message.pieces):
                if number and message.pause_s:
                    time.sleep(message.pause_s)
                connection.sendall(piece)
        except OSError:
            # It closed the connection on what came first, and may have answered that.
            pass
        connection.settimeout(ANSWER_S if message.answered else SILENCE_S)
        try:
            while part := connection.recv(1 << 16):
                received += part
        except OSError:
            # No more comes, or the rest of what was sent was refused.
            pass
    return Reply(
        message.kind,
        sum(map(len, message.pieces)),
        message.pieces[0][:BEGINNING],
        message.answered,
        tuple(int(found) for found in STATUS.findall(received)),
        begun,
        time.monotonic() - begun,
        received[:2_000],
        message.number,
    )
