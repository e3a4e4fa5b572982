"""Services that lie in wait for a server: a broker that takes passwords down, and a catalog that wants to run code."""

import json
import socketserver
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.timeouts import scaled

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
KNOWN = ((API_VERSIONS, 3), (SASL_HANDSHAKE, 1), (SASL_AUTHENTICATE, 1), (3, 1))


@dataclass
class Heard:
    """A service that listens at an address, and all that was sent to it."""

    address: str
    sent: bytearray = field(default_factory=bytearray)
    paths: list[str] = field(default_factory=list)


@contextmanager
def evil_broker() -> Iterator[Heard]:
    """Yield a broker that offers PLAIN, notes who signs in with which password, and refuses everybody."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(scaled(30))
            while len(head := self.rfile.read(4)) == 4:
                request = self.rfile.read(struct.unpack(">i", head)[0])
                heard.sent += request
                api, version, number = struct.unpack(">hhi", request[:8])
                body = struct.pack(">i", number) + _answer(api, version)
                self.wfile.write(struct.pack(">i", len(body)) + body)

    with _serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as port:
        heard = Heard(f"127.0.0.1:{port}")
        yield heard


def _answer(api: int, version: int) -> bytes:
    if api == API_VERSIONS and version >= 3:
        listed = b"".join(struct.pack(">hhhb", key, 0, most, 0) for key, most in KNOWN)
        return struct.pack(">hB", 0, len(KNOWN) + 1) + listed + struct.pack(">ib", 0, 0)
    if api == API_VERSIONS:
        listed = b"".join(struct.pack(">hhh", key, 0, most) for key, most in KNOWN)
        return struct.pack(">hi", 0, len(KNOWN)) + listed + (struct.pack(">i", 0) if version else b"")
    if api == SASL_HANDSHAKE:
        return struct.pack(">hih", 0, 1, 5) + b"PLAIN"
    # 58: the sign-in has failed.
    return struct.pack(">hhi", 58, -1, 0) + (struct.pack(">q", 0) if version else b"")


@contextmanager
def http_service(answers: Mapping[str, Any]) -> Iterator[Heard]:
    """Yield a server that gives answers by the end of the path, 404 for others, and notes the requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            heard.paths.append(self.path)
            heard.sent += f"{self.path}\n{self.headers}".encode() + body
            found = next((made for end, made in answers.items() if self.path.partition("?")[0].endswith(end)), None)
            text = json.dumps({} if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else text)

        do_POST = do_HEAD = do_GET  # noqa: N815 (names of the base class)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name of the base class)
            """Write no line for each request."""

    with _serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        heard = Heard(f"http://127.0.0.1:{port}")
        yield heard


def table_answer(
    manifests: str, properties: Mapping[str, str], config: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what a catalog answers about a table with a list of manifests, properties and a configuration."""
    fields = [
        {"id": 1, "name": "pot", "required": True, "type": "long"},
        {"id": 2, "name": "at", "required": True, "type": "timestamptz"},
    ]
    return {
        "metadata-location": f"{manifests}.metadata.json",
        "config": properties if config is None else config,
        "metadata": {
            "format-version": 2,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": manifests.rpartition("/")[0],
            "last-sequence-number": 1,
            "last-updated-ms": 1_700_000_000_000,
            "last-column-id": 2,
            "current-schema-id": 0,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": properties,
            "current-snapshot-id": 1,
            "snapshots": [
                {
                    "snapshot-id": 1,
                    "sequence-number": 1,
                    "timestamp-ms": 1_700_000_000_000,
                    "manifest-list": manifests,
                    "summary": {"operation": "append"},
                    "schema-id": 0,
                }
            ],
        },
    }


@contextmanager
def _serving(server: socketserver.TCPServer) -> Iterator[int]:
    server.daemon_threads = True  # type: ignore[attr-defined]  # both are of the threading kind
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
