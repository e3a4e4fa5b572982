"""A server with prepared answers, over a real connection."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Asked:
    """A request as it was received."""

    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


@dataclass
class Stub:
    """The received requests, and the prepared answers; the last answer is repeated."""

    url: str = ""
    # Each answer is a status and a body, and headers if there are some.
    answers: list[tuple[int, Any] | tuple[int, Any, dict[str, str]]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def will(self, body: Any, status: int = 200) -> None:
        self.answers = [(status, body)]

    @property
    def last(self) -> Asked:
        return self.asked[-1]


@contextmanager
def running() -> Iterator[Stub]:
    """Run a stub on a free port."""
    stub = Stub(answers=[(200, {})])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            stub.asked.append(Asked(self.command, parts.path, dict(parse_qsl(parts.query)), headers, body))
            status, content, *given = stub.answers.pop(0) if len(stub.answers) > 1 else stub.answers[0]
            raw = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            more: dict[str, str] = dict(*given)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815 (the names that the library looks for)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the library's name)
            """Log nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
