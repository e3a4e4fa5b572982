"""Tests that requests from web pages of other sites are refused, for each sign of such a page alone."""

from types import SimpleNamespace
from typing import Any

import pytest

from caraway.apps.server.access.gate import Gate
from caraway.apps.server.access.sites import Sites, check_media_type
from caraway.apps.server.app import App
from caraway.apps.server.handlers.arrow import CONTENT_TYPE as ARROW
from caraway.apps.server.http.arrival import Proxies
from caraway.apps.server.http.endpoints import PROTOBUF, PUBLIC, Endpoint, Router
from caraway.apps.server.http.errors import ForeignHostError, ForeignSiteError, UnsupportedMediaTypeError
from caraway.apps.server.http.messages import HttpResponse, Request, text_response
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.server import ServerSettings
from caraway.process.settings.settings import load_settings
from tests.unit.apps.server.asking import HOST, Headers, send

NO_AUDIT: Any = SimpleNamespace()
# The headers of a program's request.
PLAIN = {"host": HOST, "content-type": "application/octet-stream"}


async def done(request: Request) -> HttpResponse:
    return text_response(f"{len(request.body)} bytes")


def ask(headers: dict[str, str], method: str = "POST", path: str = "/commit", **settings: Any) -> tuple[int, str]:
    """Send a request to a server without tokens; return the status and the code of the refusal."""
    routes = (
        Endpoint("POST", "/commit", done, PUBLIC, target="lookup", accepts=PROTOBUF),
        Endpoint("GET", "/commit", done, PUBLIC, target="lookup"),
        Endpoint("GET", "/health", done, PUBLIC, target="health", probe=True),
    )
    app = App(Router(routes), Gate(NO_AUDIT, None), sites=Sites(ServerSettings(tokens=False, **settings)))
    answer = send(app, method, path, b"definitions", headers)
    assert answer.headers
    assert not [name for name, _ in answer.headers if name.startswith("access-control")]
    return answer.status, "" if answer.status == 200 else answer.json["code"]


def test_a_program_is_answered() -> None:
    assert ask(PLAIN) == (200, "")


@pytest.mark.parametrize(
    ("sign", "refused"),
    [
        ({"content-type": "text/plain"}, (415, "unsupported_media_type")),
        ({"content-type": "text/plain;charset=UTF-8"}, (415, "unsupported_media_type")),
        ({"content-type": "application/x-www-form-urlencoded"}, (415, "unsupported_media_type")),
        ({"content-type": "multipart/form-data; boundary=x"}, (415, "unsupported_media_type")),
        ({"content-type": ""}, (415, "unsupported_media_type")),
        ({"origin": "http://evil.example"}, (403, "foreign_site")),
        ({"origin": "null"}, (403, "foreign_site")),
        ({"origin": "http://127.0.0.1:9000"}, (403, "foreign_site")),
        ({"origin": "http://localhost:8100"}, (403, "foreign_site")),
        ({"origin": "http://127.0.0.1:8100.evil.example"}, (403, "foreign_site")),
        ({"origin": "http://[::1"}, (403, "foreign_site")),
        ({"origin": ""}, (403, "foreign_site")),
        ({"host": "evil.example"}, (403, "foreign_host")),
        ({"host": "evil.example:8100"}, (403, "foreign_host")),
        ({"host": "localhost.evil.example"}, (403, "foreign_host")),
        ({"host": "127.0.0.1.evil.example"}, (403, "foreign_host")),
        ({"host": "127.0.0.1@evil.example"}, (403, "foreign_host")),
        ({"host": "[::1"}, (403, "foreign_host")),
        ({"host": ""}, (403, "foreign_host")),
        ({"sec-fetch-site": "cross-site"}, (403, "foreign_site")),
    ],
)
def test_each_sign_of_another_site_is_refused_by_itself(sign: dict[str, str], refused: tuple[int, str]) -> None:
    assert ask({**PLAIN, **sign}) == refused


def test_a_request_without_a_host_is_refused() -> None:
    assert ask({"content-type": "application/octet-stream"}) == (403, "foreign_host")


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "localhost"},
        {"host": "LOCALHOST:8100"},
        {"host": "localhost.:8100"},
        {"host": "[::1]:8100"},
        {"host": "192.168.3.7:8100"},
        {"origin": f"http://{HOST}"},
        {"origin": f"https://{HOST}"},
        {"host": "127.0.0.1", "origin": "http://127.0.0.1:80"},
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
        {"content-type": "Application/X-Protobuf"},
    ],
)
def test_a_page_and_programs_of_the_server_itself_are_answered(headers: dict[str, str]) -> None:
    assert ask({**PLAIN, **headers}) == (200, "")


def test_names_and_sites_can_be_allowed() -> None:
    hosts: dict[str, Any] = {"allowed_hosts": ("features.example.com", "*.inner.example")}
    assert ask({**PLAIN, "host": "Features.example.com:443"}, **hosts) == (200, "")
    assert ask({**PLAIN, "host": "a.inner.example"}, **hosts) == (200, "")
    for other in ("inner.example", "example.com", "ainner.example", "x.features.example.com"):
        assert ask({**PLAIN, "host": other}, **hosts) == (403, "foreign_host")
    assert ask({**PLAIN, "host": "any.example"}, allowed_hosts=("*",)) == (200, "")
    assert ask({**PLAIN, "host": "caraway.test"}, host="caraway.test") == (200, "")
    page = {**PLAIN, "origin": "https://console.example.com", "sec-fetch-site": "cross-site"}
    assert ask(page, allowed_origins=("https://console.example.com/",)) == (200, "")
    assert ask({**page, "origin": "http://console.example.com"}, allowed_origins=("https://console.example.com",)) == (
        403,
        "foreign_site",
    )


def test_a_load_balancer_asks_for_health_by_any_name() -> None:
    assert ask({"host": "balancer.example"}, "GET", "/health") == (200, "")
    assert ask({"host": "balancer.example"}, "GET") == (403, "foreign_host")


def test_a_link_on_another_site_may_lead_here() -> None:
    assert ask({"host": HOST, "sec-fetch-site": "cross-site"}, "GET") == (200, "")


def test_a_refusal_says_what_to_set() -> None:
    sites = Sites(ServerSettings())
    log = Endpoint("POST", "/log", done, PUBLIC)
    with pytest.raises(ForeignHostError, match=r"evil\.example.*CARAWAY_SERVER__ALLOWED_HOSTS"):
        sites.check(log, Headers(host="evil.example"))
    with pytest.raises(ForeignSiteError, match=r"evil\.example.*CARAWAY_SERVER__ALLOWED_ORIGINS"):
        sites.check(log, Headers(host=HOST, origin="http://evil.example"))
    with pytest.raises(ForeignHostError) as caught:
        sites.check(log, Headers(host="x" * 10_000))
    assert len(str(caught.value)) < 500


def test_what_a_path_takes_is_listed() -> None:
    route = Endpoint("POST", "/query", done, PUBLIC, target="q", accepts=("application/json", ARROW))
    check_media_type(route, Headers(**{"content-type": "application/json; charset=utf-8"}))
    check_media_type(route, Headers())
    with pytest.raises(UnsupportedMediaTypeError, match=f"application/json, {ARROW}"):
        check_media_type(route, Headers(**{"content-type": "text/plain"}))


@pytest.mark.parametrize(
    ("variable", "value"),
    [("ALLOWED_HOSTS", '["http://x"]'), ("ALLOWED_HOSTS", '["a*b"]'), ("ALLOWED_ORIGINS", '["x.example"]')],
)
def test_settings_that_mean_nothing_are_refused(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(f"CARAWAY_SERVER__{variable}", value)
    with pytest.raises(ConfigurationError, match=variable):
        load_settings()


def test_only_a_trusted_proxy_changes_the_name_of_the_server() -> None:
    routes = (Endpoint("POST", "/commit", done, PUBLIC, target="lookup", accepts=PROTOBUF),)
    page = {**PLAIN, "x-forwarded-host": "caraway.example.com", "origin": "https://caraway.example.com"}
    settings = ServerSettings(tokens=False, allowed_hosts=("caraway.example.com",))

    def status(*trusted: str) -> int:
        app = App(Router(routes), Gate(NO_AUDIT, None), sites=Sites(settings), proxies=Proxies(trusted))
        return send(app, "POST", "/commit", b"definitions", page).status

    assert status() == 403
    assert status("10.0.0.5") == 403
    assert status("127.0.0.0/8") == 200
