"""Reads of another server's shards, over gRPC."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from caraway.dataplane.index.sharding.messages import Answer, Ask, Found, Moved, Refused
from caraway.dataplane.index.sharding.shard_calls import Identity, ShardClients, ShardServer
from caraway.errors import UnavailableError
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.index import IndexSettings
from tests.services.certificates import write_certificates
from tests.timeouts import deadline_in

PASS, OTHER = b"pass", b"other"
ASK = Ask(1, 2, b"asset--1", [b"key", b"\xff\x00"], [3, -4], ["a", "b"])
# All kinds of values in stored form.
VALUES = [None, True, -(2**63), 2**63 - 1, 0.1, float("inf"), "ü", b"\xff", [1, [None]], {"k": {"v": 1.0}}]


def answer(ask: Ask) -> Answer:
    match ask.shard:
        case 1:
            return Found([VALUES, [ask.token, ask.asset, ask.keys, ask.at_us, ask.columns]], [True, False])
        case 2:
            return Moved("it has another owner")
        case _:
            return Refused("nobody knows this column", invalid=True)


@pytest.fixture
def shard_server() -> Iterator[ShardServer]:
    found = ShardServer(lambda: [PASS], "127.0.0.1", 0)
    found.start(answer)
    yield found
    found.stop()


def test_answers_come_as_they_were_given(shard_server: ShardServer) -> None:
    clients = ShardClients(lambda: PASS)
    asks = [ASK, Ask(2, 0, b"", [], 5, []), Ask(3, 0, b"", [], 5, [])]
    for _ in range(2):
        assert clients.call(f"127.0.0.1:{shard_server.port}", asks).result(20) == [answer(ask) for ask in asks]
    clients.close()


def test_who_is_of_no_deployment_is_refused(shard_server: ShardServer) -> None:
    clients = ShardClients(lambda: OTHER)
    with pytest.raises(UnavailableError, match="unauthenticated"):
        clients.call(f"127.0.0.1:{shard_server.port}", [ASK]).result(20)
    clients.close()


def test_a_server_that_is_gone_is_told_and_found_again() -> None:
    first = ShardServer(lambda: [PASS], "127.0.0.1", 0)
    first.start(answer)
    clients = ShardClients(lambda: PASS, timeout_s=20)
    address = f"127.0.0.1:{first.port}"
    assert clients.call(address, [ASK]).result(20)
    first.stop()
    with pytest.raises(UnavailableError, match=address):
        clients.call(address, [ASK]).result(20)
    again = ShardServer(lambda: [PASS], "127.0.0.1", first.port)
    again.start(answer)
    # gRPC tries a failed address again only after a while, even on a new channel.
    deadline = deadline_in(60)
    while (error := clients.call(address, [ASK]).exception(20)) is not None:
        assert isinstance(error, UnavailableError)
        assert time.monotonic() < deadline, error
        time.sleep(0.02)
    assert clients.call(address, [ASK]).result(20) == [answer(ASK)]
    clients.close()
    again.stop()


def test_an_address_that_is_taken_is_told(shard_server: ShardServer) -> None:
    with pytest.raises(UnavailableError, match=str(shard_server.port)):
        ShardServer(lambda: [PASS], "127.0.0.1", shard_server.port)


def identity(folder: Path, name: str = "servers") -> Identity:
    ca_file, keystore = folder / f"{name}-ca.pem", folder / f"{name}.pem"
    write_certificates(ca_file, keystore)
    found = Identity.of(IndexSettings(ca_file=ca_file, certificate_file=keystore, key_file=keystore))
    assert found is not None
    return found


def test_servers_read_each_other_by_tls_and_refuse_other_certificates(tmp_path: Path) -> None:
    ours, others = identity(tmp_path), identity(tmp_path, "others")
    # A certificate of another authority, of somebody who trusts ours.
    forged = Identity(ours.authority, others.certificate, others.key)
    server = ShardServer(lambda: [PASS], "127.0.0.1", 0, ours)
    server.start(answer)
    address = f"127.0.0.1:{server.port}"
    clients = ShardClients(lambda: PASS, ours)
    assert clients.call(address, [ASK]).result(20) == [answer(ASK)]
    clients.close()
    for wrong in (others, forged, None):
        # All have the right pass, so that only the certificate can be the reason.
        clients = ShardClients(lambda: PASS, wrong)
        with pytest.raises(UnavailableError, match=r"index\.ca_file.*index\.certificate_file"):
            clients.call(address, [ASK]).result(20)
        clients.close()
    server.stop()


def test_a_certificate_for_other_servers_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    for name in ("servers", "others"):
        identity(tmp_path, name)
    files = {"ca_file": tmp_path / "servers-ca.pem", "certificate_file": tmp_path / "servers.pem"}
    for key in ("others.pem", "missing.pem"):
        with pytest.raises(ConfigurationError, match=r"index\.key_file.*can't be used"):
            Identity.of(IndexSettings.model_validate({**files, "key_file": tmp_path / key}))
    with pytest.raises(ValueError, match=r"index\.certificate_file and index\.ca_file are set together"):
        IndexSettings.model_validate(files)
