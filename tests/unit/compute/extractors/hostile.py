"""Messages that a process of users' functions may send to the server once a function controls its channel."""

import os
import pickle

from caraway.process.confinement.channel import HEAD, LARGEST, Channel
from caraway.process.confinement.requests import received
from caraway.process.confinement.values import packed
from tests.unit.process.confinement.colliding import flood


class _Runs:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("kill -9 $PPID",)


ANSWERS: dict[str, bytes] = {
    "pickle": pickle.dumps(_Runs()),
    "nothing": b"",
    "deep": b"\x91" * 100_000,
    "equal hashes": flood(200),
    "unknown": packed(["shutdown", None]),
    "short": packed(["done", [[]]]),
    "typed": packed(["done", [["text for a number"]]]),
    "great": packed(["done", [[2**63]]]),
    "null": packed(["done", [[None]]]),
    "columns": packed(["done", [[1], [1]]]),
    "lookup": packed(["lookup", ["Pots", "now", {"pot": 1}, []]]),
}
# The length of a message that is larger than the server's memory.
ENDLESS = "endless"


def serve(channel: Channel) -> None:
    """Answer a call with the message that its extractor is named after."""
    kind = received(channel)[2].extractor
    if kind == ENDLESS:
        channel._socket.sendall(HEAD.pack(LARGEST + 1))
    else:
        channel.send(ANSWERS[kind])
    channel.receive()
