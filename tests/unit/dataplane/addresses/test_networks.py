"""Attacks on the list of networks: addresses in all their spellings, names that change, brokers that lead elsewhere."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx2
import pytest

from caraway.dataplane.addresses import networks as reach_networks
from caraway.dataplane.addresses.limits import limits_of
from caraway.dataplane.addresses.networks import Networks, Service
from caraway.dataplane.addresses.reach import Hold, current, pinned
from caraway.errors import UnavailableError
from caraway.process.settings.settings import Settings

EVERYWHERE = tuple(map(ip_network, ("0.0.0.0/0", "::/0")))


def networks(*, loopback: bool = False, services: tuple[Service, ...] = (), listed: Any = EVERYWHERE) -> Networks:
    return Networks(listed, loopback, lambda: services)


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "::a9fe:a9fe",
        "::ffff:0:a9fe:a9fe",
        "fd00:42::42",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "168.63.129.16",
        "100.100.100.200",
    ],
)
@pytest.mark.parametrize("listed", [EVERYWHERE, (ip_network("169.254.0.0/16"), ip_network("fe80::/10"))])
def test_metadata_services_are_refused_in_every_spelling_and_whatever_is_listed(address: str, listed: Any) -> None:
    said = networks(loopback=True, listed=listed).refusal(address, 80)
    assert "machine's identity" in said
    assert not networks(listed=listed).refusal(address, 80, metadata=True)


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "::127.0.0.1", "2002:7f00:1::"]
)
def test_this_machine_is_refused_with_the_name_of_the_setting_unless_it_is_listed(address: str) -> None:
    assert "connectors.loopback=true" in networks().refusal(address, 5432)
    assert not networks(loopback=True).refusal(address, 5432)


def test_an_address_outside_the_list_and_a_name_in_the_place_of_an_address_are_refused() -> None:
    own = networks(listed=[ip_network("10.0.0.0/8")])
    assert not own.refusal("10.1.2.3", 9092)
    assert "connectors.networks" in own.refusal("192.168.0.1", 9092)
    assert "no IP address" in own.refusal("localhost", 9092)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1"])
def test_a_service_of_the_platform_is_refused_at_every_address_of_this_machine(address: str) -> None:
    kafka = Service("Kafka", "localhost", 9092)
    said = networks(loopback=True, services=(kafka,)).refusal(address, 9092)
    assert "the platform's own Kafka" in said
    assert "connectors.own_services" in said
    assert not networks(loopback=True, services=(kafka,)).refusal(address, 9093)
    shared = Service("Kafka", "localhost", 9092, shared=True)
    assert not networks(services=(shared,)).refusal(address, 9092)


def test_an_address_that_a_service_s_name_once_had_stays_the_platform_s(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([["10.0.0.7"], ["10.0.0.8"], []])

    def rotating(host: str, *_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in next(answers)]

    monkeypatch.setattr(socket, "getaddrinfo", rotating)
    monkeypatch.setattr(reach_networks, "_KEPT_S", -1.0)
    own = networks(services=(Service("Kafka", "kafka.internal", 9092),))
    for said in (own.refusal("10.0.0.7", 9092), own.refusal("10.0.0.7", 9092), own.refusal("10.0.0.8", 9092)):
        assert "the platform's own Kafka" in said


def test_the_port_of_a_service_whose_name_is_not_known_yet_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    own = networks(services=(Service("Kafka", "kafka.internal", 9092),))
    said = own.refusal("10.0.0.7", 9092)
    assert "kafka.internal" in said
    assert "isn't known" in said
    assert not own.refusal("10.0.0.7", 9093)
    # The name is looked up again at once, not after the time for which known ones are kept.
    found.append((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.9", 0)))
    assert not own.refusal("10.0.0.7", 9092)
    assert "the platform's own Kafka" in own.refusal("10.0.0.9", 9092)
    shared = networks(services=(Service("Kafka", "none.internal", 9092, shared=True),))
    assert not shared.refusal("10.0.0.7", 9092)


@contextmanager
def listener() -> Iterator[tuple[int, list[str]]]:
    """Yield the port of a listener of this machine, and who has connected to it."""
    seen: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        over = threading.Event()

        def accept() -> None:
            while not over.is_set():
                try:
                    connection, peer = server.accept()
                except TimeoutError:
                    continue
                seen.append(str(peer))
                connection.close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1], seen
        finally:
            over.set()
            thread.join()


def test_a_python_library_connects_to_no_refused_address_in_threads_of_its_own_either() -> None:
    hold = Hold(networks())
    errors: list[str] = []

    def ask(port: int) -> None:
        try:
            httpx2.get(f"http://localhost:{port}/", trust_env=False)
        except httpx2.HTTPError as error:
            errors.append(str(error))

    with listener() as (port, seen):
        with hold.held():
            ask(port)
            thread = threading.Thread(target=ask, args=(port,))
            thread.start()
            thread.join()
        assert [error for error in errors if "connectors.loopback" in error] == errors
        assert len(errors) == 2
        assert current() is None
        assert not seen
        ask(port)
        assert seen, "the attack would have worked"


def test_an_error_tells_the_refusal_whatever_the_library_says() -> None:
    hold = Hold(networks())

    def fail() -> None:
        with hold.held():
            try:
                socket.create_connection(("127.0.0.1", 1))
            except OSError:
                raise UnavailableError("the database is away") from None

    with pytest.raises(UnavailableError, match=r"connectors\.loopback=true .*\(the database is away\)"):
        fail()


def test_a_name_that_changes_between_the_check_and_the_connection_of_libpq_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([["10.0.0.7", "127.0.0.1"], ["127.0.0.1"]])

    def rebinding(host: str, port: int, **_: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in next(answers)]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    with Hold(networks()).held():
        assert pinned("db.example.com", 5432) == {"host": "db.example.com", "hostaddr": "10.0.0.7", "port": 5432}
        with pytest.raises(UnavailableError, match=r"connectors\.loopback"):
            pinned("db.example.com", 5432)


def test_brokers_that_the_settings_do_not_name_are_the_platform_s(tmp_path: Path) -> None:
    kafka = {"bootstrap_servers": "127.0.0.1:9092"}
    brokers: set[tuple[str, int]] = set()
    settings = Settings.model_validate({"data_dir": tmp_path, "kafka": kafka, "connectors": {"loopback": True}})
    reach = limits_of(settings, lambda: brokers).networks
    assert reach is not None
    assert "own Kafka" in reach.refusal("127.0.0.1", 9092)
    assert not reach.refusal("127.0.0.1", 9192)
    # A broker has told of the others.
    brokers.add(("127.0.0.1", 9192))
    assert "own Kafka" in reach.refusal("127.0.0.1", 9192)
