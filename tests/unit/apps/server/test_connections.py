"""Connections of strangers, and answers that nobody reads: others are answered all the same."""

import errno
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from caraway.apps.server.access.gate import Gate
from caraway.apps.server.access.sites import Sites
from caraway.apps.server.app import App, RequestBounds
from caraway.apps.server.http.arrival import Proxies
from caraway.apps.server.http.budget import Budget
from caraway.apps.server.http.connections import STUCK_S, Connections
from caraway.apps.server.http.endpoints import ANY_TOKEN, PUBLIC, Endpoint, Router
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.apps.stack import ports
from caraway.process.settings.server import ServerSettings
from caraway.state.access import AccessList, TokenOwner, digest_of
from caraway.state.permissions import EVERYTHING, Caller
from tests.timeouts import deadline_in, scaled
from tests.tls import TLS
from tests.unit.apps.server.listening import serving

LIMIT = 64
TOKEN, OTHER_TOKEN = {"Authorization": "Bearer ours"}, {"Authorization": "Bearer theirs"}
# The seconds within which a caller is answered: far less than those for which a stranger may hold a connection.
ANSWER_S = 10.0


# A large answer has far more bytes than the kernel's buffers of a connection. Three of them fit into the memory of
# unread answers, and two into the share of one caller.
LARGE, ANSWERS = 20_000_000, 100_000_000


async def answered(request: Request) -> HttpResponse:
    del request
    return json_response({})


async def answered_at_length(request: Request) -> HttpResponse:
    del request
    return HttpResponse(200, [], bytes(LARGE))


ENDPOINTS = (
    Endpoint("GET", "/large", answered_at_length, ANY_TOKEN, target="large"),
    Endpoint("GET", "/health", answered, PUBLIC, target="health", probe=True),
    Endpoint("GET", "/data", answered, ANY_TOKEN, target="data"),
)


def gate() -> Gate:
    owners = {
        digest_of(token): TokenOwner(Caller(account=token, token_id=token, grants=(EVERYTHING,)), None)
        for token in ("ours", "theirs")
    }
    access: Any = SimpleNamespace(list_now=lambda _known: AccessList(1, owners))
    audit: Any = SimpleNamespace()
    made = Gate(audit, access)
    made.refresh()
    return made


@contextmanager
def server(*, host: str = "127.0.0.1", trusted: Sequence[str] = ()) -> Iterator[int]:
    port, proxies = ports.choose(), Proxies(trusted)
    connections = Connections(port, LIMIT, believes=proxies.believes)
    sites = Sites(ServerSettings(host=host, port=port))
    with serving(
        App(Router(ENDPOINTS), gate(), sites=sites, proxies=proxies, connections=connections),
        host=host,
        port=port,
        limit=LIMIT,
    ):
        connections.start()
        yield port
        assert connections.stop(scaled(10))


class Watched:
    """A server whose connections are looked at when a test says so, at a time that it sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.port = ports.choose()
        self.bounds = RequestBounds(answers=Budget(ANSWERS, lends=False))
        self.connections = Connections(self.port, LIMIT, tokens=False, clock=lambda: self.now)

    def look(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.connections._look()

    def look_until(self, done: Callable[[], bool]) -> None:
        """Look, without letting time pass, until the HTTP server and the kernel have done their parts."""
        deadline = deadline_in(30)
        while not done():
            assert time.monotonic() < deadline
            time.sleep(0.01)
            self.look()


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched()
    sites = Sites(ServerSettings(port=made.port))
    app = App(Router(ENDPOINTS), gate(), made.bounds, sites=sites, connections=made.connections)
    with serving(app, port=made.port, limit=LIMIT):
        yield made


def asked(port: int, path: str, headers: Mapping[str, str], *, buffer: int = 4096) -> socket.socket:
    """Send a request on a connection that takes few bytes before they are read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.settimeout(scaled(30))
    connection.connect(("127.0.0.1", port))
    lines = "".join(f"{name}: {value}\r\n" for name, value in {"Host": f"127.0.0.1:{port}", **headers}.items())
    connection.sendall(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
    return connection


def status_of(connection: socket.socket) -> int:
    return int(connection.recv(12).split()[1])


def connect(port: int, address: str = "127.0.0.1", *, host: str = "127.0.0.1") -> socket.socket:
    """Connect from an address of this machine."""
    return socket.create_connection((host, port), timeout=scaled(30), source_address=(address, 0))


def ask(port: int, path: str, address: str = "127.0.0.1", **headers: str) -> int:
    """Send a request over a connection of its own, and return the status."""
    transport = httpx2.HTTPTransport(local_address=address, verify=TLS)
    with httpx2.Client(transport=transport, timeout=scaled(ANSWER_S)) as client:
        return client.get(f"http://127.0.0.1:{port}{path}", headers=headers).status_code


def is_open(connection: socket.socket) -> bool:
    """Return whether the other end hasn't ended a connection on which nothing was sent."""
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


@pytest.mark.parametrize("theirs", ["127.0.0.1", "127.0.0.9"], ids=["the-same-address", "another-address"])
def test_a_stranger_who_holds_connections_keeps_nobody_from_answers(theirs: str) -> None:
    with server() as port, ExitStack() as held:
        for _ in range(2 * LIMIT):
            held.enter_context(connect(port, theirs))
        assert ask(port, "/data", **TOKEN) == 200
        assert ask(port, "/health") == 200
        assert ask(port, "/data") == 401


def test_strangers_of_many_addresses_keep_nobody_from_answers() -> None:
    with server() as port, ExitStack() as held:
        for number in range(2 * LIMIT):
            held.enter_context(connect(port, f"127.0.1.{number % 32 + 1}"))
        assert ask(port, "/data", **TOKEN) == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"], ids=["ipv4", "ipv6"])
def test_a_connection_on_which_a_token_was_shown_is_not_ended(host: str) -> None:
    if not _has(host):
        pytest.skip(f"this machine has no address {host}")
    with server(host=host) as port, ExitStack() as held:
        address = f"[{host}]" if ":" in host else host
        ours = httpx2.Client(base_url=f"http://{address}:{port}", timeout=scaled(ANSWER_S), verify=TLS)
        held.enter_context(ours)
        assert ours.get("/data", headers=TOKEN).status_code == 200
        (used,) = _pool(ours)
        strangers = [held.enter_context(connect(port, host, host=host)) for _ in range(2 * LIMIT)]
        # The first of these are ended, which a read waits for.
        assert strangers[0].recv(1) == b""
        assert ours.get("/data", headers=TOKEN).status_code == 200
        assert _pool(ours) == [used]


def test_connections_of_a_trusted_proxy_have_no_bound() -> None:
    with server(trusted=["127.0.0.9"]) as port, ExitStack() as held:
        theirs = [held.enter_context(connect(port, "127.0.0.9")) for _ in range(LIMIT // 2)]
        others = [held.enter_context(connect(port, "127.0.0.8")) for _ in range(LIMIT // 2)]
        # The first of these are ended, which a read waits for.
        assert others[0].recv(1) == b""
        assert all(is_open(connection) for connection in theirs)


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="other systems don't tell what a client has taken")


@LINUX
def test_answers_that_nobody_reads_are_bounded_and_end(watched: Watched) -> None:
    with ExitStack() as held:
        statuses = [status_of(held.enter_context(asked(watched.port, "/large", TOKEN))) for _ in range(6)]
        assert statuses == [200, 200, 429, 429, 429, 429]
        for _ in range(3):
            watched.look(STUCK_S / 4)
        # Nothing has ended yet. Another caller gets a large answer, and this one gets small ones.
        assert watched.bounds.answers.used == 2 * LARGE
        assert ask(watched.port, "/large", **OTHER_TOKEN) == 200
        assert ask(watched.port, "/data", **TOKEN) == 200
        watched.look_until(lambda: watched.bounds.answers.used == 2 * LARGE)
        watched.look(STUCK_S + 1)
        watched.look_until(lambda: watched.bounds.answers.used == 0)
        assert ask(watched.port, "/large", **TOKEN) == 200


@LINUX
def test_a_client_that_reads_slowly_gets_all(watched: Watched) -> None:
    with asked(watched.port, "/large", TOKEN, buffer=1_000_000) as connection:
        assert status_of(connection) == 200
        got = 0
        while got < LARGE:
            read = len(connection.recv(2_000_000, socket.MSG_WAITALL if LARGE - got > 2_000_000 else 0))
            assert read
            got += read
            watched.look(STUCK_S * 0.75)
        assert watched.now > 5 * STUCK_S
        watched.look_until(lambda: watched.bounds.answers.used == 0)


def test_answers_that_are_read_one_after_the_other_have_no_bound(watched: Watched) -> None:
    # Nobody looks at the connection: its next request shows that the answer before was taken.
    with httpx2.Client(base_url=f"http://127.0.0.1:{watched.port}", timeout=scaled(30), verify=TLS) as client:
        assert {client.get("/large", headers=TOKEN).status_code for _ in range(10)} == {200}
        assert client.get("/data", headers=TOKEN).status_code == 200
    assert watched.bounds.answers.used == 0


@LINUX
def test_an_answer_whose_client_has_gone_counts_no_longer(watched: Watched) -> None:
    with asked(watched.port, "/large", TOKEN) as connection:
        assert status_of(connection) == 200
        watched.look()
        assert watched.bounds.answers.used == LARGE
    watched.look_until(lambda: watched.bounds.answers.used == 0)


@LINUX
def test_requests_that_are_sent_before_an_answer_is_read_wait(watched: Watched) -> None:
    with asked(watched.port, "/large", TOKEN) as connection:
        request = f"GET /large HTTP/1.1\r\nHost: 127.0.0.1:{watched.port}\r\nAuthorization: Bearer ours\r\n\r\n"
        connection.sendall(5 * request.encode())
        assert status_of(connection) == 200
        assert ask(watched.port, "/data", **TOKEN) == 200
        assert watched.bounds.answers.used == LARGE


def test_a_server_without_tokens_ends_no_connections_of_strangers(watched: Watched) -> None:
    with ExitStack() as held:
        theirs = [held.enter_context(connect(watched.port)) for _ in range(LIMIT // 2)]
        assert ask(watched.port, "/health") == 200
        watched.look()
        assert all(is_open(connection) for connection in theirs)


def _has(host: str) -> bool:
    """Return whether this machine has an address."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        return probe.connect_ex((host, 9)) != errno.EADDRNOTAVAIL


def _pool(client: httpx2.Client) -> list[object]:
    transport: Any = client._transport
    return list(transport._pool.connections)
