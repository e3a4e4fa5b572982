"""The console in process of the unit tests, behind HTTP, so that a browser can open its pages."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from typing_extensions import override

from tests.unit.apps.server.console.site import Site


@contextmanager
def served(site: Site) -> Iterator[str]:
    """Serve a console on a free port of this machine, and yield its address."""
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            given = {name.lower(): value for name, value in self.headers.items()}
            with one_at_a_time:
                answer = site.send(self.command, self.path, body, **given)
            self.send_response(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Write nothing: a test shows what it asked for."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="served site", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
