"""Bounds on the connections of strangers, who haven't shown a valid token on them, and on answers that nobody reads.

The HTTP server takes so many connections and no more, and tells nobody of one before its first request. So this part
looks at the process's own sockets now and then, and ends connections of strangers, the oldest first: of an address that
has many of them, and of all addresses if they are half of what the server takes. A connection on which a caller has
shown a valid token once isn't ended, and the rest is kept for those who connect to show one, and for probes of health.

The HTTP server keeps the rest of an answer in memory until its client has read it, however long that takes, and tells
nobody. So this part asks the kernel how much each client of a large answer has acknowledged, tells when the answer has
been taken, and ends a connection whose client takes nothing of it for a minute.
"""

import os
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from caraway.process.recurring import Recurring

LOG = structlog.get_logger(__name__)

# The connections of strangers are bounded: those of one address to a sixteenth of what the server accepts, and all of
# them together to a half.
ADDRESS_PART, STRANGERS_PART = 16, 2
# Seconds between two looks at the connections, and the shorter pause after a look that has ended some. To occupy all
# connections in spite of that, a stranger must open half of them within the shorter pause: 82,000 a second with the
# default of 16,384.
LOOK_S, SOON_S = 0.5, 0.1
# While clients haven't taken large answers, a look is followed by a pause of at least this many times the look's time.
LOOK_PART = 20
# A connection is ended if its client takes nothing of a large answer for this many seconds: as long as a request may
# take.
STUCK_S = 60.0
# The length of Linux's `struct tcp_info`, and where it has the packets that are sent and not acknowledged, the bytes
# that are acknowledged, and the bytes that aren't sent yet (<linux/tcp.h>; Linux 4.6 and later).
TCP_INFO_BYTES, UNACKNOWLEDGED, ACKNOWLEDGED, UNSENT = 160, ("=I", 24), ("=Q", 120), ("=I", 144)
# Seconds between two log lines about connections that were ended.
TOLD_S = 60.0
# The folder whose file names are the numbers of this process's open descriptors.
DESCRIPTORS = Path("/dev/fd")

# A client as the HTTP server names it: "127.0.0.1:47011", "[::1]:47011".
Client = str


@dataclass(slots=True)
class _Answer:
    """A large answer that is being sent, and how far it was at the last look.

    `taken` is to be called once its client has all of it. `waits` is true if some of it waited to be acknowledged, and
    `since` is when the number of acknowledged bytes changed.
    """

    taken: Callable[[], object]
    waits: bool = True
    acknowledged: int = -1
    since: float = 0.0


class Connections(Recurring):
    """The connections to one port of this process."""

    def __init__(
        self,
        port: int,
        limit: int,
        *,
        believes: Callable[[str], bool] = lambda _: False,
        tokens: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; `start` begins to look.

        Args:
            port: The port.
            limit: How many connections the server takes.
            believes: Returns whether an address is that of a proxy, whose connections are of many callers.
            tokens: The server asks for tokens. If it doesn't, nobody is a stranger.
            clock: Returns the time in seconds.
        """
        super().__init__("connections", self._look, self._pause_s)
        self._port = port
        self._of_address, self._of_strangers = max(1, limit // ADDRESS_PART), max(1, limit // STRANGERS_PART)
        self._believes = believes
        self._tokens = tokens
        self._clock = clock
        self._known: set[Client] = set()
        # The clients that have shown a valid token since the last look began. That look may have listed the connections
        # before theirs were open, so the next look adds these clients.
        self._new: set[Client] = set()
        # The time at which each connection of a stranger was first seen.
        self._strangers: dict[Client, float] = {}
        # The large answers that were sent since the last look, in their order, and those that are being sent.
        self._sent: deque[tuple[Client, Callable[[], object]]] = deque()
        self._answers: dict[Client, _Answer] = {}
        self._took = 0.0
        self._ended_at = self._told_at = float("-inf")
        self._untold = 0

    def know(self, client: Client) -> None:
        """Note that a caller has shown a valid token on a connection. May be called by any thread."""
        self._new.add(client)

    def follow(self, client: Client, taken: Callable[[], object]) -> None:
        """Follow a large answer that is sent, and have `taken` called when its client has it or is gone.

        May be called by any thread. `taken` is called by the thread that looks at connections.
        """
        self._sent.append((client, taken))

    def _look(self) -> None:
        begun = self._clock()
        new, self._new = self._new, set()
        # The connections of these answers are listed below, unless they have been closed.
        while self._sent:
            client, taken = self._sent.popleft()
            if (before := self._answers.pop(client, None)) is not None:
                before.taken()
            self._answers[client] = _Answer(taken)
        there = dict(self._there([path.name for path in DESCRIPTORS.iterdir()]))
        known = self._known = (self._known & there.keys()) | new
        now = self._clock()
        self._follow_answers(there, now)
        self._strangers = {
            client: self._strangers.get(client, now)
            for client in there
            # A caller may have shown a token since this look began.
            if self._tokens
            and client not in known
            and client not in self._new
            and not self._believes(address_of(client))
        }
        ended = self._surplus()
        for client in ended:
            _end(client, there[client])
        if ended:
            self._tell(len(ended), now)
        self._took = self._clock() - begun

    def _follow_answers(self, there: Mapping[Client, int], now: float) -> None:
        """Report answers that were taken, and end connections whose clients take nothing."""
        for client, answer in list(self._answers.items()):
            acknowledged, waits = _progress(there[client]) if client in there else (0, False)
            # The HTTP server has nothing more to send if the kernel hasn't. At the first look it may not have begun.
            if client not in there or not (waits or answer.waits):
                del self._answers[client]
                answer.taken()
            elif not waits or acknowledged != answer.acknowledged:
                answer.since = now
            elif now > answer.since + STUCK_S:
                LOG.info("a connection was ended whose client takes nothing of an answer", client=client)
                _end(client, there[client])
                answer.since = now
            answer.acknowledged, answer.waits = acknowledged, waits

    def _surplus(self) -> list[Client]:
        """Return the connections that are to be ended."""
        by_address: dict[str, list[Client]] = {}
        for client in sorted(self._strangers, key=self._strangers.__getitem__):
            by_address.setdefault(address_of(client), []).append(client)
        ended = [client for found in by_address.values() for client in found[: -self._of_address]]
        gone = frozenset(ended)
        left = [client for client in sorted(self._strangers, key=self._strangers.__getitem__) if client not in gone]
        return ended + left[: max(0, len(left) - self._of_strangers)]

    def _tell(self, ended: int, now: float) -> None:
        self._ended_at, self._untold = now, self._untold + ended
        if now >= self._told_at + TOLD_S:
            LOG.warning(
                "connections of callers without a token were ended",
                ended=self._untold,
                most_of_address=self._of_address,
                most=self._of_strangers,
            )
            self._told_at, self._untold = now, 0

    def _pause_s(self) -> float:
        if self._clock() < self._ended_at + LOOK_S:
            return SOON_S
        # The memory of answers that were taken is soon used again, but looks may not take much time for that.
        return min(LOOK_S, max(SOON_S, LOOK_PART * self._took)) if self._answers or self._sent else LOOK_S

    def _there(self, names: list[str]) -> Iterator[tuple[Client, int]]:
        """Yield the clients that are connected to the port, with the numbers of their descriptors."""
        for name in names:
            client = _client_of(int(name), self._port)
            if client is not None:
                yield client, int(name)


def address_of(client: Client) -> str:
    """Return the address of a client without its port."""
    return client.rpartition(":")[0].strip("[]")


def _client_of(descriptor: int, port: int) -> Client | None:
    """Return the client at the other end of a descriptor; None if it is no connection to this port."""
    try:
        connection = _socket(descriptor)
    except OSError:
        return None
    try:
        return _client(connection, port)
    finally:
        # Without this, the descriptor would be closed with the object, but it belongs to the HTTP server.
        connection.detach()


def _progress(descriptor: int) -> tuple[int, bool]:
    """Return how many bytes the other end of a connection has acknowledged, and whether more wait to be.

    Systems other than Linux don't tell, and there nothing is said to wait.
    """
    if not hasattr(socket, "TCP_INFO"):
        return 0, False
    try:
        connection = _socket(descriptor)
    except OSError:
        return 0, False
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        unacknowledged, acknowledged, unsent = (
            struct.unpack_from(form, info, at)[0] for form, at in (UNACKNOWLEDGED, ACKNOWLEDGED, UNSENT)
        )
        return acknowledged, bool(unacknowledged or unsent)
    except (OSError, struct.error):
        return 0, False
    finally:
        connection.detach()


def _socket(descriptor: int) -> socket.socket:
    """Return a socket object of a descriptor. Raises `OSError` if the descriptor is no socket."""
    # Without a family and a type, Python would ask the system for both. The family tells Python how many bytes to read
    # of an address: those of IPv6 are enough for IPv4, too, and each address itself says which it is.
    return socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, fileno=descriptor)


def _client(connection: socket.socket, port: int) -> Client | None:
    with suppress(OSError):
        here = connection.getsockname()
        if isinstance(here, tuple) and here[1] == port:
            host, number, *_ = connection.getpeername()
            return f"[{host}]:{number}" if ":" in host else f"{host}:{number}"
    return None


def _end(client: Client, descriptor: int) -> None:
    """End a connection, unless its descriptor has become another file's meanwhile."""
    with suppress(OSError), _socket(os.dup(descriptor)) as own:
        if _client(own, own.getsockname()[1]) == client:
            # To the HTTP server this looks as if the client had ended the connection, so the server closes it.
            own.shutdown(socket.SHUT_RDWR)
