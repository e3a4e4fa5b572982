"""Connections of strangers: they can be many, and callers with a token are answered all the same."""

import errno
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from caraway.apps.server.access.gate import Gate
from caraway.apps.server.access.sites import Sites
from caraway.apps.server.app import App
from caraway.apps.server.http.arrival import Proxies
from caraway.apps.server.http.connections import Connections
from caraway.apps.server.http.endpoints import ANY_TOKEN, PUBLIC, Endpoint, Router
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.apps.stack import ports
from caraway.process.settings.server import ServerSettings
from caraway.state.access import AccessList, TokenOwner, digest_of
from caraway.state.permissions import EVERYTHING, Caller
from tests.timeouts import scaled
from tests.tls import TLS
from tests.unit.apps.server.listening import serving

LIMIT = 64
TOKEN = {"Authorization": "Bearer ours"}
# The seconds within which a caller is answered: far less than those for which a stranger may hold a connection.
ANSWER_S = 10.0


async def answered(request: Request) -> HttpResponse:
    del request
    return json_response({})


ENDPOINTS = (
    Endpoint("GET", "/health", answered, PUBLIC, target="health", probe=True),
    Endpoint("GET", "/data", answered, ANY_TOKEN, target="data"),
)


def gate() -> Gate:
    owner = TokenOwner(Caller(account="ada", token_id="t1", grants=(EVERYTHING,)), None)
    access: Any = SimpleNamespace(list_now=lambda _known: AccessList(1, {digest_of("ours"): owner}))
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


def _has(host: str) -> bool:
    """Return whether this machine has an address."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        return probe.connect_ex((host, 9)) != errno.EADDRNOTAVAIL


def _pool(client: httpx2.Client) -> list[object]:
    transport: Any = client._transport
    return list(transport._pool.connections)
