"""Messages that a process of users' functions may send to the server once a function controls its channel."""

import os
import pickle as pickles
from collections.abc import Callable

from caraway.functions.confinement.channel import HEAD, LARGEST, Channel
from caraway.functions.confinement.values import packed


class _Runs:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("kill -9 $PPID",)


def _answering(content: bytes) -> Callable[[Channel], None]:
    def serve(channel: Channel) -> None:
        channel.receive()
        channel.send(content)
        channel.receive()

    return serve


def endless(channel: Channel) -> None:
    """Send the length of a message that is larger than the server's memory."""
    channel.receive()
    channel._socket.sendall(HEAD.pack(LARGEST + 1))
    channel.receive()


pickle = _answering(pickles.dumps(_Runs()))
nothing = _answering(b"")
deep = _answering(b"\x91" * 100_000)
unknown = _answering(packed(["shutdown", None]))
short = _answering(packed(["done", [[]]]))
typed = _answering(packed(["done", [["text for a number"]]]))
great = _answering(packed(["done", [[2**63]]]))
null = _answering(packed(["done", [[None]]]))
columns = _answering(packed(["done", [[1], [1]]]))
lookup = _answering(packed(["lookup", ["Pots", "now", {"pot": 1}, []]]))
