"""A connection to a server that takes very little time by itself, so that measured times are those of the server.

With Python's `http.client` a request takes 0.2 ms more of the processor, which a measured server on the same machine
then lacks.
"""

import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, Self
from urllib.parse import urlsplit

import orjson

from caraway.client.discovery import find_server
from caraway.client.response import TOO_MANY, V1_API, no_answer, retry_after
from caraway.errors import RemoteError, UnavailableError
from caraway.process.authorities import authorities

TIMEOUT_SECONDS = 60.0
# The most seconds for which a request is repeated while the server answers that it has too much to do (429).
LONGEST_WAIT_SECONDS = 180.0
# The pause in seconds if such an answer doesn't say how long to wait.
PAUSE_SECONDS = 1.0
OK = 200
END_OF_HEAD = b"\r\n\r\n"
RECEIVED_BYTES = 64 * 1024


class DemoConnection:
    """One connection to a server, for one thread."""

    def __init__(
        self, url: str, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Connect at the first request. If `url` is that of a stack on this machine, requests carry its token."""
        address = urlsplit(url)
        self._url = url
        self._clock = clock
        self._sleep = sleep
        token = find_server(url).token
        authorization = f"Authorization: Bearer {token}\r\n" if token else ""
        self._headers = f"Host: {address.netloc}\r\nContent-Type: application/json\r\n{authorization}"
        self._context = authorities() if address.scheme == "https" else None
        self._where = (address.hostname or "", address.port or (80 if self._context is None else 443))
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a further request opens another one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """Post `body` as JSON below `/api/v1` and return the JSON of the answer.

        Raises:
            RemoteError: The server refused the request, or still had too much to do after `LONGEST_WAIT_SECONDS`.
            UnavailableError: The server doesn't answer.
        """
        return self.post_bytes(path, orjson.dumps(body))

    def post_bytes(self, path: str, body: bytes) -> Any:
        """Post JSON that is already encoded; otherwise like `post`."""
        return self._ask("POST", path, body)

    def get(self, path: str) -> Any:
        """Return the JSON of a GET request; errors are those of `post`."""
        return self._ask("GET", path, None)

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:
        started = self._clock()
        while True:
            try:
                return self._once(method, path, body)
            except RemoteError as error:
                pause = PAUSE_SECONDS if error.retry_after_s is None else error.retry_after_s
                if error.status != TOO_MANY or self._clock() - started + pause > LONGEST_WAIT_SECONDS:
                    raise
                self._sleep(pause)

    def _once(self, method: str, path: str, body: bytes | None) -> Any:
        given = b"" if body is None else body
        head = f"{method} {V1_API}{path} HTTP/1.1\r\n{self._headers}Content-Length: {len(given)}\r\n\r\n"
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._where, TIMEOUT_SECONDS)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._context is not None:
                    self._socket = self._context.wrap_socket(self._socket, server_hostname=self._where[0])
            # Head and body leave in one packet, so that the server is woken once for a request.
            self._socket.sendall(head.encode() + given)
            status, headers, content = _answer(self._socket)
        except (OSError, ValueError) as error:
            self.close()
            if isinstance(error, ssl.SSLError):
                raise no_answer(self._url, error) from error
            raise UnavailableError(f"the server doesn't answer: {error}") from error
        if headers.get("connection", "").lower() == "close":
            self.close()
        if status != OK:
            raise RemoteError(
                f"{path} answered {status}: {content[:500].decode(errors='replace')}",
                status=status,
                retry_after_s=retry_after(headers.get("retry-after")),
            )
        return orjson.loads(content)


def _answer(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Read an answer: status, headers by lower-case name, and body.

    Raises:
        OSError: The connection ended, or nothing came in time.
        ValueError: The bytes are no answer with a known length.
    """
    data = bytearray()
    while (end := data.find(END_OF_HEAD)) < 0:
        _receive(connection, data)
    status_line, *lines = data[:end].decode("latin-1").split("\r\n")
    version, status, *_ = status_line.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if version == "HTTP/1.0":
        headers.setdefault("connection", "close")
    length = headers.get("content-length")
    if length is None:
        raise ValueError("an answer has no Content-Length")
    del data[: end + len(END_OF_HEAD)]
    while len(data) < int(length):
        _receive(connection, data)
    return int(status), headers, bytes(data)


def _receive(connection: socket.socket, data: bytearray) -> None:
    received = connection.recv(RECEIVED_BYTES)
    if not received:
        raise ConnectionResetError("the connection ended before the answer was complete")
    data += received
