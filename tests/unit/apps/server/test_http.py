"""Tests of HTTP through granian, with handlers of the tests: connections, missing bodies, deadlines, shares."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing

import httpx2
import pytest

from caraway.apps.server.access.gate import Gate
from caraway.apps.server.access.sites import Sites
from caraway.apps.server.app import App, RequestBounds
from caraway.apps.server.http.endpoints import PUBLIC, Endpoint, Router
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.process.settings.server import ServerSettings
from caraway.state.audit import AuditLog
from caraway.state.database import connect
from tests.timeouts import scaled
from tests.tls import TLS
from tests.unit.apps.server.listening import serving

IDLE = 2_000


async def echo(request: Request) -> HttpResponse:
    return json_response({"bytes": len(request.body), "branch": request.branch})


async def parsed(request: Request) -> HttpResponse:
    value = await request.values(request.body)
    return json_response({"items": len(value)})


async def slow(request: Request) -> HttpResponse:
    del request
    await asyncio.Event().wait()
    raise AssertionError("nothing sets it")


ENDPOINTS = (
    Endpoint("POST", "/echo", echo, PUBLIC, target="echo"),
    Endpoint("POST", "/parsed", parsed, PUBLIC, target="parsed"),
    Endpoint("GET", "/slow", slow, PUBLIC, target="slow"),
    Endpoint("GET", "/health", echo, PUBLIC, target="health", probe=True),
)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Serve the routes on a port; the gate admits everybody and records nothing, so it needs no database."""
    gate = Gate(AuditLog(connect("postgresql://nobody@127.0.0.1:1/none")), None)
    bounds = RequestBounds.of(ServerSettings(request_seconds=3.0, concurrency_per_token=3))
    with serving(App(Router(ENDPOINTS), gate, bounds, sites=Sites(ServerSettings()))) as chosen:
        yield chosen


def raw(port: int, request: bytes) -> bytes:
    """Send bytes and return the first line of the answer, nothing if the connection is closed without one."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as answer:
            try:
                return answer.readline()
            except ConnectionResetError:
                return b""


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
        b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nX-Caraway-Branch: \xff\xfe\r\n\r\n{}",
        b"POST /parsed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Encoding: \xff\r\n\r\n{}",
        b"POST /parsed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nAuthorization: \xff\r\n\r\n[]",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: \xff\r\n\r\n",
        b"GET /%ff%00%2e%2e HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Type: \xff\r\n\r\n{}",
        b"\x16\x03\x01\x02\x00\r\n\r\n",
    ],
)
def test_malformed_requests_are_no_failure_of_the_server(port: int, request_bytes: bytes) -> None:
    status = raw(port, request_bytes)
    assert status == b"" or status.split()[1] in {b"200", b"400", b"404", b"413", b"414", b"431"}, status


def test_a_caller_is_answered_beside_idle_connections(port: int) -> None:
    idle = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(IDLE)]
    try:
        # The health check is answered quickly although another request hangs.
        assert httpx2.get(f"http://127.0.0.1:{port}/health", timeout=scaled(0.25), verify=TLS).status_code == 200
    finally:
        for connection in idle:
            connection.close()


def test_pipelined_requests_are_answered_in_order(port: int) -> None:
    one = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
    with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as connection:
        connection.sendall(b"".join(one % (n, b"x" * n) for n in range(1, 200)))
        found = b""
        while b'{"bytes":199,' not in found:
            found += connection.recv(65_536)
    places = [found.index(b'{"bytes":%d,' % n) for n in range(1, 200)]
    assert places == sorted(places)


def test_a_request_has_its_time(port: int) -> None:
    answer = httpx2.get(f"http://127.0.0.1:{port}/slow", verify=TLS)
    assert (answer.status_code, answer.json()["code"]) == (504, "deadline_exceeded")


def test_a_caller_has_its_share_and_health_is_answered_beside_it(port: int) -> None:
    slow_body = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
    held = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(3)]
    try:
        for connection in held:
            connection.sendall(slow_body)
        answer = httpx2.post(f"http://127.0.0.1:{port}/echo", content=b"", verify=TLS)
        while answer.status_code != 429:
            answer = httpx2.post(f"http://127.0.0.1:{port}/echo", content=b"", verify=TLS)
        assert (answer.json()["code"], answer.headers["retry-after"]) == ("busy", "1")
        assert httpx2.get(f"http://127.0.0.1:{port}/health", verify=TLS).status_code == 200
    finally:
        for connection in held:
            connection.close()
    while httpx2.post(f"http://127.0.0.1:{port}/echo", content=b"", verify=TLS).status_code == 429:
        pass


def test_bodies_of_all_sizes_come_whole(port: int) -> None:
    for size in (0, 1, 64 * 1024, 64 * 1024 + 1, 5_000_000):
        assert httpx2.post(f"http://127.0.0.1:{port}/echo", content=b"x" * size, verify=TLS).json()["bytes"] == size
    many = b"[" + b'{"a":1},' * 90_000 + b"{}]"
    assert httpx2.post(f"http://127.0.0.1:{port}/parsed", content=many, timeout=30, verify=TLS).json() == {
        "items": 90_001
    }
