import socket

import pytest

from caraway.apps.stack import ports
from caraway.apps.stack.errors import PortInUseError
from caraway.process.settings.errors import ConfigurationError


def test_a_port_with_a_listener_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not ports.is_free(server.getsockname()[1])


def test_a_chosen_port_is_free_and_not_among_those_to_avoid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "FIRST", 20_000)
    monkeypatch.setattr(ports, "LAST", 20_008)
    monkeypatch.setattr(ports, "is_free", lambda port, host="127.0.0.1": port != 20_003)
    assert ports.choose(avoid={20_000, 20_001, 20_002, 20_004, 20_005, 20_006}) == 20_007


def test_no_free_port_is_an_error_that_says_where_it_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port, host="127.0.0.1": False)
    with pytest.raises(PortInUseError, match=f"{ports.FIRST} and {ports.LAST}"):
        ports.choose()


def test_ports_lie_below_the_range_for_outgoing_connections() -> None:
    assert all(ports.FIRST <= ports.choose() < 32_768 for _ in range(5))


def test_a_reserved_port_is_taken_for_everybody_but_a_server_that_shares_it() -> None:
    port = ports.choose()
    with ports.reserve(port):
        assert not ports.is_free(port)
        with pytest.raises(PortInUseError, match=str(port)):
            ports.reserve(port)
        with (
            socket.create_server(("127.0.0.1", port), reuse_port=True) as server,
            socket.create_connection(("127.0.0.1", port)) as client,
            server.accept()[0] as answering,
        ):
            answering.sendall(b"ok")
            assert client.recv(2) == b"ok"
    assert ports.is_free(port)


def test_the_next_free_port_is_reserved() -> None:
    first = ports.choose()
    with ports.reserve(first):
        port, held = ports.reserve_from(first, avoid={first + 1})
        with held:
            assert port > first + 1
            assert not ports.is_free(port)


def test_no_free_port_from_one_on_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "NEXT_PORTS", 1)
    port = ports.choose()
    with ports.reserve(port), pytest.raises(PortInUseError, match="CARAWAY_SERVER__PORT"):
        ports.reserve_from(port)


@pytest.mark.parametrize("host", ["203.0.113.1", "no.such.host.invalid"])
def test_an_address_that_is_not_of_this_machine_is_not_called_taken(host: str) -> None:
    for reserve in (ports.reserve, ports.reserve_from):
        with pytest.raises(ConfigurationError, match=f"{host}.*CARAWAY_SERVER__HOST"):
            reserve(ports.choose(), host)
