"""A schema registry for tests: a small HTTP server with the part of Confluent's interface that serializers use."""

import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson


class RegistryServer:
    """The schemas of a registry, and its answers.

    Attributes:
        url: Its address.
        login: The header that requests must have; empty: none.
        broken: The status that all requests are answered with; 0: they are served.
        requests: The paths that were asked for.
    """

    def __init__(self) -> None:
        self.login = ""
        self.broken = 0
        self.requests: list[str] = []
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def basic(self, username: str, password: str) -> None:
        self.login = f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}"

    def bearer(self, token: str) -> None:
        self.login = f"Bearer {token}"

    def add(self, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()) -> int:
        text = schema if isinstance(schema, str) else orjson.dumps(schema).decode()
        found = {"schema": text, "schemaType": kind, "references": list(references)}
        if found not in self._schemas:
            self._schemas.append(found)
        number = self._schemas.index(found) + 1
        versions = self._subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        match method, path.strip("/").split("/"):
            case "GET", ["schemas", "ids", number] if 0 < int(number) <= len(self._schemas):
                found = self._schemas[int(number) - 1]
                return 200, {
                    key: value for key, value in found.items() if value and (key, value) != ("schemaType", "AVRO")
                }
            case "GET", ["schemas", "ids", _]:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case "GET", ["subjects", subject, "versions", version]:
                versions = self._subjects.get(unquote(subject), [])
                if not 0 < int(version) <= len(versions):
                    return 404, {"error_code": 40402, "message": "Version not found"}
                found = self._schemas[versions[int(version) - 1] - 1]
                return 200, {"subject": subject, "version": int(version), "id": versions[int(version) - 1], **found}
            case "POST", ["subjects", subject, *_]:
                kind, references = body.get("schemaType", "AVRO"), body.get("references") or ()
                added = self.add(unquote(subject), body["schema"], kind, references)
                at = self._subjects[unquote(subject)].index(added) + 1
                return 200, {"id": added, "version": at, "subject": unquote(subject), "schema": body["schema"]}
            case _:
                return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                path = urlsplit(self.path).path
                registry.requests.append(path)
                length = int(self.headers.get("Content-Length") or 0)
                body = orjson.loads(self.rfile.read(length)) if length else None
                if registry.broken:
                    status, answer = registry.broken, {"error_code": registry.broken, "message": "broken"}
                elif registry.login and self.headers.get("Authorization") != registry.login:
                    status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
                else:
                    status, answer = registry.answer(self.command, path, body)
                content = orjson.dumps(answer)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = _serve  # noqa: N815 (the names that the library calls)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the library's name)
                pass

        return Handler

    def run(self) -> None:
        self._server.serve_forever(poll_interval=0.01)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def registry_server() -> Iterator[RegistryServer]:
    server = RegistryServer()
    thread = threading.Thread(target=server.run, name="registry", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()
