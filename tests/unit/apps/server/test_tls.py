"""Tests of TLS: the server's certificate, the versions, all clients of the platform, refusals with the remedy."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from caraway.apps.cli.connection import send
from caraway.apps.demo.http import DemoConnection
from caraway.apps.server.access.gate import Gate
from caraway.apps.server.app import App
from caraway.apps.server.http.arrival import came_by_tls
from caraway.apps.server.http.endpoints import PUBLIC, Endpoint, Router
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.apps.stack.probe import check_http
from caraway.client.discovery import ServerAddress
from caraway.client.http import Connection
from caraway.errors import UnavailableError
from caraway.process.authorities import authorities
from caraway.process.settings.certificates import certificate_of, client_url, warning_of
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.server import ServerSettings
from caraway.process.settings.settings import load_settings
from caraway.state.audit import AuditLog
from caraway.state.database import connect
from tests.services.certificates import write_certificates
from tests.unit.apps.server.listening import serving

PATH = "/health"


async def show(request: Request) -> HttpResponse:
    del request
    return json_response({"by_tls": came_by_tls()})


@dataclass(frozen=True, slots=True)
class Secured:
    """A server that speaks TLS: its port, the authority of its certificate, and both with its key."""

    port: int
    ca_file: Path
    keystore: Path

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    ca_file, keystore = folder / "ca.pem", folder / "server.pem"
    write_certificates(ca_file, keystore)
    gate = Gate(AuditLog(connect("postgresql://nobody@127.0.0.1:1/none")), None)
    routes = (Endpoint("GET", f"/api/v1{PATH}", show, PUBLIC, target="health", probe=True),)
    with serving(App(Router(routes), gate, sites=None), certificate=keystore, key=keystore) as port:
        yield Secured(port, ca_file, keystore)


@pytest.fixture(params=["trusted", "not trusted"])
def trusted(request: pytest.FixtureRequest, secured: Secured, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Yield True with the authority of the server in the environment, and False without."""
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    if request.param == "trusted":
        monkeypatch.setenv("SSL_CERT_FILE", str(secured.ca_file))
    else:
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    authorities.cache_clear()
    yield request.param == "trusted"
    authorities.cache_clear()


def ask_as_client(url: str) -> object:
    with closing(Connection(url, "secret")) as connection:
        return connection.request("GET", PATH, {}).json()


def ask_as_command(url: str) -> object:
    return send("GET", PATH, ServerAddress(url, "secret"), headers={}).json()


def ask_as_demo(url: str) -> object:
    with DemoConnection(url) as connection:
        return connection.get(PATH)


@pytest.mark.parametrize("ask", [ask_as_client, ask_as_command, ask_as_demo])
def test_clients_verify_the_server(secured: Secured, ask: object, trusted: bool) -> None:
    assert callable(ask)
    if trusted:
        assert ask(secured.url) == {"by_tls": True}
        return
    with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED") as caught:
        ask(secured.url)
    assert "SSL_CERT_FILE" in str(caught.value)


def test_the_stack_recognizes_its_server_by_its_certificate_alone(secured: Secured, tmp_path: Path) -> None:
    assert check_http(secured.url, None, secured.keystore) is None
    # The check trusts no other server, such as one that has taken the port, and gives it no token.
    write_certificates(tmp_path / "ca.pem", tmp_path / "other.pem")
    assert "CERTIFICATE_VERIFY_FAILED" in (check_http(secured.url, None, tmp_path / "other.pem") or "")


@pytest.mark.parametrize(("version", "accepted"), [("TLSv1_1", False), ("TLSv1_2", True), ("TLSv1_3", True)])
def test_versions_before_1_2_are_refused(secured: Secured, version: str, accepted: bool) -> None:
    context = ssl.create_default_context(cafile=secured.ca_file)
    # OpenSSL offers old versions at this level only.
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1") if not accepted else nullcontext():
        context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    with socket.create_connection(("127.0.0.1", secured.port), 10) as connection:
        if accepted:
            with context.wrap_socket(connection, server_hostname="127.0.0.1") as wrapped:
                assert (wrapped.version() or "") in {"TLSv1.2", "TLSv1.3"}
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                context.wrap_socket(connection, server_hostname="127.0.0.1")


def test_plain_http_gets_no_answer(secured: Secured) -> None:
    with pytest.raises(httpx2.TransportError):
        httpx2.get(f"http://127.0.0.1:{secured.port}/api/v1{PATH}", verify=authorities())


def settings(secured: Secured, **changes: object) -> ServerSettings:
    files = {"certificate_file": secured.keystore, "key_file": secured.keystore}
    return ServerSettings.model_validate({"port": 8100, **files, **changes})


def test_a_certificate_that_cannot_be_used_is_refused_at_the_start(secured: Secured, tmp_path: Path) -> None:
    write_certificates(tmp_path / "ca.pem", tmp_path / "other.pem")
    (tmp_path / "text.pem").write_text("no certificate")
    for name in ("other.pem", "text.pem", "missing.pem"):
        with pytest.raises(ConfigurationError, match=r"server\.key_file.*can't be used.*passphrase"):
            certificate_of(settings(secured, key_file=tmp_path / name))
    with pytest.raises(ConfigurationError, match=r"server\.certificate_file"):
        certificate_of(settings(secured, certificate_file=tmp_path / "missing.pem"))
    (tmp_path / "caraway.toml").write_text(f"[server]\ncertificate_file = {str(secured.keystore)!r}\n")
    with pytest.raises(ConfigurationError, match=r"server\.key_file: it and server\.certificate_file are set together"):
        load_settings(tmp_path)


def test_tokens_in_clear_and_an_end_of_the_certificate_are_warned_of(secured: Secured) -> None:
    open_to_all = {"host": "0.0.0.0"}
    assert "travel in clear" in warning_of(ServerSettings.model_validate(open_to_all))
    assert warning_of(ServerSettings.model_validate({**open_to_all, "trusted_proxies": ["10.0.0.5"]})) == ""
    assert warning_of(ServerSettings()) == ""
    # The certificates of tests are valid for a day.
    assert "certificate ends at" in warning_of(settings(secured))


def test_clients_find_the_server_by_a_name_of_its_certificate(secured: Secured) -> None:
    assert client_url(settings(secured)) == "https://127.0.0.1:8100"
    assert client_url(settings(secured, host="::1")) == "https://127.0.0.1:8100"
    assert client_url(ServerSettings(port=8100)) == "http://127.0.0.1:8100"
