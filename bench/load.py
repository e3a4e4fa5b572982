"""A load generator on plain sockets: one process, one thread, as little work for a request as Python allows.

A request costs it some 15 us, so it can saturate a server that needs more than that for a request.
"""

import selectors
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

OK = b"HTTP/1.1 200"
CONTENT_LENGTH = b"content-length:"
RECEIVE = 1 << 20


@dataclass(frozen=True, slots=True)
class Figures:
    """The results of a run: sorted latencies in seconds, and the duration."""

    latencies: Sequence[float]
    seconds: float

    def percentile(self, percent: float) -> float:
        """Return a latency in milliseconds."""
        return 1000 * self.latencies[min(len(self.latencies) - 1, int(len(self.latencies) * percent / 100))]

    @property
    def rate(self) -> float:
        """The number of requests a second."""
        return len(self.latencies) / self.seconds

    def as_json(self) -> dict[str, float]:
        """Return the figures."""
        return {
            "requests": len(self.latencies),
            "requests_per_second": round(self.rate, 1),
            "p50_ms": round(self.percentile(50), 4),
            "p99_ms": round(self.percentile(99), 4),
        }


def post(url: str, body: bytes, *, token: str | None = None) -> bytes:
    """Return the bytes of a request, which shows a token if there is one."""
    address = urlsplit(url)
    shown = f"Authorization: Bearer {token}\r\n" if token else ""
    head = (
        f"POST {address.path} HTTP/1.1\r\nHost: {address.netloc}\r\n{shown}Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def get(url: str) -> bytes:
    """Return the bytes of a request without a body."""
    address = urlsplit(url)
    return f"GET {address.path} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode()


def connect(url: str, tls: ssl.SSLContext | None = None) -> socket.socket:
    """Open a connection that sends at once, with TLS if there is a context for it."""
    address = urlsplit(url)
    connection = socket.create_connection((address.hostname, address.port or 80), timeout=10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection if tls is None else tls.wrap_socket(connection, server_hostname=address.hostname)


def missing(answer: bytes) -> int:
    """Return the number of bytes of an answer that are still to come; 1 as a guess while its head isn't complete.

    Raises:
        RuntimeError: The answer isn't a success.
    """
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return 1
    if not answer.startswith(OK):
        raise RuntimeError(answer[:500].decode(errors="replace"))
    head = answer[:end].lower()
    start = head.index(CONTENT_LENGTH) + len(CONTENT_LENGTH)
    length = int(head[start:].split(b"\r\n", 1)[0])
    return end + 4 + length - len(answer)


def ask(connection: socket.socket, request: bytes) -> bytes:
    """Send a request and return the whole answer."""
    connection.sendall(request)
    answer = connection.recv(RECEIVE)
    while missing(answer) > 0:
        answer += more(connection)
    return answer


def one_by_one(url: str, requests: Sequence[bytes], seconds: float, tls: ssl.SSLContext | None = None) -> Figures:
    """Send requests over one connection, each after the answer to the one before."""
    latencies = []
    with connect(url, tls) as connection:
        begun = time.perf_counter()
        end, number = begun + seconds, 0
        while (sent := time.perf_counter()) < end:
            ask(connection, requests[number % len(requests)])
            latencies.append(time.perf_counter() - sent)
            number += 1
        took = time.perf_counter() - begun
    return Figures(sorted(latencies), took)


def together(url: str, requests: Sequence[bytes], seconds: float, connections: int) -> Figures:
    """Keep a request under way on each of several connections."""
    latencies: list[float] = []
    with selectors.DefaultSelector() as selector:
        opened = [connect(url) for _ in range(connections)]
        begun = time.perf_counter()
        state: dict[socket.socket, tuple[float, bytes]] = {}
        for number, connection in enumerate(opened):
            selector.register(connection, selectors.EVENT_READ)
            state[connection] = (time.perf_counter(), b"")
            connection.sendall(requests[number % len(requests)])
        number, end = connections, begun + seconds
        while time.perf_counter() < end:
            for key, _ in selector.select(1.0):
                connection = key.fileobj  # type: ignore[assignment]
                sent, answer = state[connection]
                answer += more(connection)
                if missing(answer) > 0:
                    state[connection] = (sent, answer)
                    continue
                now = time.perf_counter()
                latencies.append(now - sent)
                state[connection] = (now, b"")
                connection.sendall(requests[number % len(requests)])
                number += 1
        took = time.perf_counter() - begun
        for connection in opened:
            connection.close()
    return Figures(sorted(latencies), took)


def more(connection: socket.socket) -> bytes:
    """Return the bytes of an answer that have come. Raises `RuntimeError` at the end of the connection."""
    data = connection.recv(RECEIVE)
    if not data:
        raise RuntimeError("the server closed the connection")
    return data
