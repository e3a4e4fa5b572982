"""Tests of the way of a request: a proxy's word is believed only from the addresses that the settings list."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from caraway.apps.server.http.arrival import Arrival, Proxies, arrival, came_by_tls

PROXY, STRANGER, CLIENT = "10.0.0.5", "192.0.2.7", "203.0.113.9"
SPOOFED = "198.51.100.1"


@dataclass(slots=True)
class Sent:
    """A request as granian shows it: several headers may have one name, of which `get` returns the first."""

    client: str
    lines: tuple[tuple[str, str], ...] = ()
    scheme: str = "http"
    method: str = "GET"
    path: str = "/"
    query_string: str = ""
    headers: Any = field(init=False)

    def __post_init__(self) -> None:
        self.headers = self

    def get_all(self, key: str) -> list[str]:
        return [value for name, value in self.lines if name == key]


def way(client: str, *lines: tuple[str, str], scheme: str = "http", trusted: tuple[str, ...] = (PROXY,)) -> Arrival:
    Proxies(trusted).note(Sent(client, lines, scheme))
    return arrival()


TOLD = (("x-forwarded-proto", "https"), ("x-forwarded-for", CLIENT), ("x-forwarded-host", "caraway.example.com"))


def test_a_connection_by_tls_is_secure() -> None:
    assert way(f"{STRANGER}:4711", scheme="https") == Arrival(by_tls=True, address=STRANGER)
    assert came_by_tls()
    assert way(f"{STRANGER}:4711") == Arrival(by_tls=False, address=STRANGER)
    assert not came_by_tls()


def test_a_trusted_proxy_is_believed() -> None:
    assert way(f"{PROXY}:4711", *TOLD) == Arrival(by_tls=True, address=CLIENT, host="caraway.example.com")
    forwarded = ("forwarded", f'for="{CLIENT}:99";proto=https;host=caraway.example.com')
    assert way(f"{PROXY}:4711", forwarded) == Arrival(by_tls=True, address=CLIENT, host="caraway.example.com")
    assert way("[::ffff:10.0.0.5]:4711", *TOLD).by_tls
    assert way(PROXY, scheme="https") == Arrival(by_tls=True, address=PROXY)


@pytest.mark.parametrize("peer", [STRANGER, "127.0.0.1", "10.0.0.6", "", "unix:", "x"])
@pytest.mark.parametrize("lines", [TOLD, (("forwarded", f"for={CLIENT};proto=https;host=evil.example.com"),)])
def test_nobody_else_is_believed(peer: str, lines: tuple[tuple[str, str], ...]) -> None:
    found = way(f"{peer}:4711", *lines)
    assert not found.by_tls
    assert found.host is None
    assert found.address != CLIENT
    assert not way(f"{PROXY}:4711", *lines, trusted=()).by_tls


def test_what_a_client_has_put_before_the_proxies_step_is_not_believed() -> None:
    joined = way(PROXY, ("x-forwarded-for", f"{SPOOFED}, {CLIENT}"))
    apart = way(PROXY, ("x-forwarded-for", SPOOFED), ("x-forwarded-for", CLIENT), *TOLD[:1])
    rfc = way(PROXY, ("forwarded", f"for={SPOOFED};proto=https"), ("forwarded", f"for={CLIENT};proto=http"))
    assert [found.address for found in (joined, apart, rfc)] == [CLIENT] * 3
    assert not rfc.by_tls


def test_a_way_through_several_trusted_proxies_leads_to_the_client() -> None:
    steps = ("x-forwarded-for", f"{SPOOFED}, {CLIENT}, 10.1.2.3")
    assert way(PROXY, steps, trusted=(PROXY, "10.1.0.0/16")).address == CLIENT
    assert way(PROXY, steps).address == "10.1.2.3"


@pytest.mark.parametrize(
    "value", ["", ",", ";", "=", 'for="', "for=[", "for=unknown", "for=_hidden;proto=", "," * 9_000]
)
def test_malformed_headers_tell_nothing(value: str) -> None:
    for name in ("forwarded", "x-forwarded-for", "x-forwarded-proto"):
        found = way(PROXY, (name, value))
        assert (found.by_tls, found.address) == (False, PROXY)


def test_a_process_of_the_server_passes_the_way_on() -> None:
    told = way(PROXY, *TOLD).told
    Proxies(everybody=True).note(Sent("unix", tuple(told.items())))
    assert (arrival().by_tls, arrival().address) == (True, CLIENT)
