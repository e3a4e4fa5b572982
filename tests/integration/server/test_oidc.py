"""Tests of OpenID Connect against a provider in a process of its own: the console as a browser, the API with JWTs."""

import asyncio
import base64
import hashlib
import hmac
import json
import os
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc.jwk import RSAKey

from caraway.apps.server.access import provider as provider_module
from caraway.apps.server.access.provider import LEEWAY_S, MAX_TOKEN, Person, Provider
from caraway.apps.stack.ports import choose
from caraway.errors import BusyError, UnauthenticatedError, UnavailableError
from caraway.process.settings.oidc import OidcSettings
from caraway.state.audit import AuditLog
from caraway.state.database import connect
from caraway.state.permissions import Grant, Mode
from tests.integration.server.guarded import Guarded
from tests.integration.server.server_process import ServerProcess, eventually
from tests.services.oidc import AUDIENCE, CLIENT, PASSWORD, PROGRAM, SECRET, IdentityProvider, running_provider
from tests.timeouts import scaled
from tests.tls import TLS

GROUP = "features"
CODE = re.compile(r'name="code" value="([0-9a-f]+)"')


@pytest.fixture(scope="module")
def running() -> Iterator[IdentityProvider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture
def identity(running: IdentityProvider) -> IdentityProvider:
    running.set(groups=[GROUP, "others"], misbehaves="", lasts=600)
    return running


@pytest.fixture(scope="module")
def guarded(
    kafka: str, module_postgres: str, tmp_path_factory: pytest.TempPathFactory, running: IdentityProvider
) -> Any:
    folder, port = tmp_path_factory.mktemp("oidc"), choose()
    secret = folder / "client"
    secret.write_text(f"{SECRET}\n")
    here = f"http://127.0.0.1:{port}/console/signed-in"
    running.set(redirect_uri=here)
    oidc = OidcSettings(
        issuer=running.issuer,
        client_id=CLIENT,
        client_secret_file=secret,
        redirect_url=here,
        audience=AUDIENCE,
        cli_client_id=PROGRAM,
        roles={GROUP: ("by-group", "no such role"), "empty": ()},
    )
    process = ServerProcess(folder, kafka=kafka, postgres=module_postgres, tokens=True, oidc=oidc, port=port)
    process.start()
    try:
        with closing(Guarded(process, connect(module_postgres))) as made:
            made.access.define_role("by-group", [Grant(modes=frozenset({Mode.READ_DEFINITION, Mode.READ_DATA}))])
            yield made
    finally:
        assert process.stop() == 0, process.said()


class Browser:
    """A browser of somebody, which keeps cookies and follows links."""

    def __init__(self, guarded: Guarded) -> None:
        self.console = str(guarded.server.settings.server.url)
        self.http = httpx2.Client(verify=TLS, timeout=guarded.server.http.timeout)

    def begin(self, wanted: str = "") -> str:
        """Go to the provider's form; return its address."""
        page = self.http.get(f"{self.console}/console/sign-in", params={"next": wanted})
        (link,) = re.findall(r'href="(/console/sign-in/provider[^"]*)"', page.text)
        left = self.http.get(self.console + link.replace("&amp;", "&"))
        assert left.status_code == 303
        return left.headers["location"]

    def enter(self, form: str, password: str = PASSWORD) -> str:
        """Fill in the provider's form; return the address to which it sends the browser back."""
        assert 'type="password"' in self.http.get(form).text
        return self.http.post(form, data={"password": password}).headers["location"]

    def sign_in(self, wanted: str = "") -> httpx2.Response:
        return self.http.get(self.enter(self.begin(wanted)))

    @property
    def session(self) -> str | None:
        return self.http.cookies.get("caraway_session")

    def sees(self, path: str = "/console/catalog") -> bool:
        return self.http.get(self.console + path).status_code == 200


@pytest.fixture
def browser(guarded: Guarded, identity: IdentityProvider) -> Iterator[Browser]:
    del identity
    found = Browser(guarded)
    yield found
    found.http.close()


def lines(guarded: Guarded, count: int = 1) -> list[tuple[str, str, str]]:
    newest = AuditLog(guarded.engine).newest(count)
    return [(line.act.account, line.act.action, line.outcome) for line in newest]


class Terminal:
    """A shell of somebody on another machine, who has neither a token nor a stack."""

    def __init__(self, guarded: Guarded, home: Path) -> None:
        self.url, self.home = str(guarded.server.settings.server.url), home
        left_out = {"CARAWAY_TOKEN", "CARAWAY_URL", "CARAWAY_DATA_DIR"}
        known = {name: value for name, value in os.environ.items() if name not in left_out}
        places = {name: str(home / name) for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "HOME")}
        self.environment = {**known, **places, "CARAWAY_URL": self.url}

    def start(self, *words: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "caraway.apps.cli", *words]
        return subprocess.Popen(
            command, env=self.environment, cwd=self.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *words: str) -> tuple[int, str]:
        """Run a command, and return its exit code and what it has printed."""
        with self.start(*words) as process:
            printed = "".join(process.communicate(timeout=scaled(120)))
        return process.returncode, printed

    @property
    def file(self) -> Path:
        return self.home / "XDG_CONFIG_HOME" / "caraway" / "logins.json"

    @property
    def kept(self) -> dict[str, Any]:
        """The sign-in that is kept."""
        found: dict[str, Any] = json.loads(self.file.read_bytes())[self.url]
        return found

    def login(self, password: str = PASSWORD, *, before: Callable[[str], object] = lambda _: None) -> tuple[int, str]:
        """Sign in by a browser, after something else was done with the address to which it comes back."""
        with self.start("login", "--no-browser") as process, httpx2.Client(verify=TLS) as browser:
            assert process.stderr is not None
            form = next(line for line in process.stderr if "Sign in at " in line).split("Sign in at ")[1].strip()
            back = parse_qs(urlsplit(form).query)["redirect_uri"][0]
            before(back)
            assert browser.get(form).status_code == 200
            sent = browser.post(form, data={"password": password}).headers["location"]
            assert sent.startswith(back)
            assert browser.get(sent).status_code == 200
            printed = "".join(process.communicate(timeout=scaled(60)))
        return process.returncode, printed


@pytest.fixture
def terminal(guarded: Guarded, identity: IdentityProvider, tmp_path: Path) -> Terminal:
    del identity
    return Terminal(guarded, tmp_path)


def test_the_command_line_signs_in_and_keeps_its_tokens_to_itself(
    guarded: Guarded, terminal: Terminal, identity: IdentityProvider
) -> None:
    code, said = terminal.run("datasets")
    assert (code, "a token is needed" in said) == (1, True), said
    assert terminal.login()[0] == 0
    assert stat.S_IMODE(terminal.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(terminal.file.parent.stat().st_mode) == 0o700
    code, said = terminal.run("datasets")
    assert code == 0, said
    # The account is the provider's, with the rights of its group.
    code, said = terminal.run("history", "--token", "")
    assert code == 1
    assert guarded.server.http.get("audit").status_code == 200
    other = dict(terminal.environment, CARAWAY_URL=terminal.url.replace("127.0.0.1", "localhost"))
    terminal.environment = other
    code, said = terminal.run("datasets")
    assert (code, "a token is needed" in said) == (1, True), said
    assert identity.refresh_tokens() >= 1


def test_a_token_of_the_command_line_is_renewed_and_ends_with_the_sign_out(
    terminal: Terminal, identity: IdentityProvider
) -> None:
    identity.set(lasts=45, refresh={})
    assert terminal.login()[0] == 0
    first = terminal.kept
    # A token that would end within a minute is renewed; the refresh token counts once.
    code, said = terminal.run("datasets")
    assert code == 0, said
    second = terminal.kept
    assert {first["access_token"], first["refresh_token"]}.isdisjoint({second["access_token"], second["refresh_token"]})
    # Several commands at a time renew it one after the other.
    many = [terminal.start("datasets") for _ in range(3)]
    for process in many:
        process.communicate(timeout=scaled(120))
    assert [process.returncode for process in many] == [0, 0, 0]
    assert identity.refresh_tokens() == 1
    identity.set(refresh={})
    code, said = terminal.run("datasets")
    assert (code, "caraway login" in said) == (1, True), said
    assert terminal.login()[0] == 0
    assert terminal.run("logout")[0] == 0
    assert identity.refresh_tokens() == 0
    assert json.loads(terminal.file.read_bytes()) == {}


def test_nobody_else_ends_a_sign_in_of_the_command_line(terminal: Terminal) -> None:
    """A page that the browser shows meanwhile may guess the port, but not the state; nor may it keep others waiting."""
    answers: list[int] = []

    def intrude(back: str) -> None:
        guesses = ("", "?code=stolen", "?code=stolen&state=guessed", "?error=access_denied&state=")
        with socket.create_connection(("127.0.0.1", httpx2.URL(back).port or 0)):
            answers.extend(httpx2.get(f"{back}{query}", verify=TLS, timeout=4).status_code for query in guesses)

    assert terminal.login(before=intrude)[0] == 0
    assert answers == [404] * 4
    code, said = terminal.login("wrong")
    assert (code, "refuses" in said) == (1, True), said


def test_a_person_signs_in_with_the_provider_and_out_again(guarded: Guarded, browser: Browser) -> None:
    back = browser.sign_in("/console/catalog?q=pots")
    assert (back.status_code, back.headers["location"]) == (303, "/console/catalog?q=pots")
    kept, gone = back.headers.get_list("set-cookie")
    assert {"HttpOnly", "SameSite=Strict", "Path=/console"} <= set(kept.split("; "))
    assert "Max-Age=0" in gone
    page = browser.http.get(f"{browser.console}/console/catalog").text
    assert "oidc:ada" in page
    assert lines(guarded) == [("oidc:ada", "sign in", "done")]
    # The roles of the group hold, and no more than they.
    assert browser.http.get(f"{browser.console}/console/tokens").status_code == 403
    session = browser.session or ""
    headers = {"authorization": f"Bearer {session}"}
    assert httpx2.get(f"{browser.console}/api/v1/status", headers=headers, verify=TLS).status_code == 401
    code = CODE.search(browser.http.get(f"{browser.console}/console/query").text)
    assert code is not None
    origin = {"origin": browser.console}
    done = browser.http.post(f"{browser.console}/console/sign-out", data={"code": code[1]}, headers=origin)
    assert done.headers["location"] == "/console/sign-in"
    browser.http.cookies.set("caraway_session", session, domain="127.0.0.1", path="/console")
    assert not browser.sees()
    assert ("oidc:ada", "sign out", "done") in lines(guarded, 9)


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example/", "//evil.example/console", "/console\\@evil.example", "/api/v1/status"]
)
def test_a_sign_in_ends_at_a_page_of_the_console(browser: Browser, elsewhere: str) -> None:
    assert browser.sign_in(elsewhere).headers["location"] == "/console"


def test_another_browsers_sign_in_is_not_taken_up(guarded: Guarded, browser: Browser) -> None:
    # Mallory sends a link with a code of their own, so that the victim would work in mallory's account.
    mallory = Browser(guarded)
    with closing(mallory.http):
        link = mallory.enter(mallory.begin())
    for signs_in_too in (False, True):
        if signs_in_too:
            browser.begin()
        refused = browser.http.get(link)
        assert (refused.status_code, browser.session, "(state)" in refused.text) == (401, None, True)
        assert urlsplit(link).query not in refused.text
    # Nor does a code of another browser fit the state of one's own: its verifier is another one.
    own = parse_qs(urlsplit(browser.begin()).query)["state"][0]
    code = parse_qs(urlsplit(link).query)["code"][0]
    refused = browser.http.get(f"{browser.console}/console/signed-in", params={"code": code, "state": own})
    assert (refused.status_code, browser.session, "(invalid_grant)" in refused.text) == (401, None, True)
    eventually(lambda: lines(guarded)[0] == ("", "sign in", "unauthenticated"), guarded.server.said)


def test_a_code_counts_once_and_only_with_its_nonce(browser: Browser, identity: IdentityProvider) -> None:
    link = browser.enter(browser.begin())
    kept = dict(browser.http.cookies)
    assert browser.http.get(link).status_code == 303
    browser.http.cookies.clear()
    assert browser.http.get(link).status_code == 401
    for name, value in kept.items():
        browser.http.cookies.set(name, value, domain="127.0.0.1", path="/console")
    replayed = browser.http.get(link)
    assert (replayed.status_code, browser.session) == (401, None)
    identity.set(misbehaves="nonce")
    refused = browser.sign_in()
    assert (refused.status_code, browser.session, "(nonce)" in refused.text) == (401, None, True)
    identity.set(misbehaves="")
    refused = browser.http.get(browser.enter(browser.begin(), "wrong"))
    assert (refused.status_code, "access_denied" in refused.text) == (401, True)


@pytest.mark.parametrize("groups", [[], ["others"], "others", None, 7, ["empty"], [[GROUP]]])
def test_who_is_in_no_group_with_a_role_is_told_the_remedy(
    guarded: Guarded, browser: Browser, identity: IdentityProvider, groups: object
) -> None:
    identity.set(groups=groups)
    refused = browser.sign_in()
    assert (refused.status_code, browser.session, "oidc.roles" in refused.text) == (403, None, True)
    answer = status(guarded, identity.token())
    assert (answer.status_code, "oidc.roles" in answer.json()["err_msg"]) == (403, True)
    eventually(lambda: lines(guarded)[0][::2] == ("oidc:ada", "forbidden"), guarded.server.said)


def status(guarded: Guarded, token: str) -> httpx2.Response:
    url = f"{guarded.server.settings.server.url}/api/v1/metrics"
    return httpx2.get(url, headers={"authorization": f"Bearer {token}"}, verify=TLS)


def test_the_api_takes_jwts_of_the_provider_beside_its_own_tokens(guarded: Guarded, identity: IdentityProvider) -> None:
    token = identity.token()
    for _ in range(2):
        assert status(guarded, token).status_code == 200
    assert status(guarded, guarded.admin).status_code == 200
    url = f"{guarded.server.settings.server.url}/api/v1/tokens"
    refused = httpx2.post(url, headers={"authorization": f"Bearer {token}"}, json={"account": "me"}, verify=TLS)
    assert (refused.status_code, "'oidc:ada' lacks" in refused.json()["err_msg"]) == (403, True)
    # A JWT isn't a token with which a session could begin, which would outlive it.
    form = {"token": token, "next": ""}
    origin = {"origin": str(guarded.server.settings.server.url)}
    page = httpx2.post(f"{origin['origin']}/console/sign-in", data=form, headers=origin, verify=TLS)
    assert (page.status_code, page.headers.get("set-cookie")) == (401, None)
    # A change of the role holds at once, although the token was verified before.
    guarded.access.define_role("by-group", [Grant(modes=frozenset({Mode.WRITE_DATA}))])
    read = f"{guarded.server.settings.server.url}/api/v1/branch/list"
    asked = {"authorization": f"Bearer {token}"}
    eventually(lambda: httpx2.get(read, headers=asked, verify=TLS).status_code == 403, guarded.server.said)
    guarded.access.define_role("by-group", [Grant(modes=frozenset({Mode.READ_DEFINITION, Mode.READ_DATA}))])
    eventually(lambda: httpx2.get(read, headers=asked, verify=TLS).status_code == 200, guarded.server.said)
    assert status(guarded, forged(identity, "none")).status_code == 401


class Clock:
    """A clock of the test."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def provider(identity: IdentityProvider, clock: Clock) -> Provider:
    settings = OidcSettings(issuer=identity.issuer, audience=AUDIENCE, roles={GROUP: ("reader",)})
    return Provider(identity.issuer, settings, clock=clock)


def refusal(provider: Provider, token: str) -> str:
    with pytest.raises(UnauthenticatedError) as error:
        asyncio.run(provider.verify(token))
    return str(error.value)


def part(values: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).rstrip(b"=").decode()


def forged(identity: IdentityProvider, algorithm: str, secret: bytes = b"", **header: object) -> str:
    """Return a token that nobody has signed, or that was signed with a secret that everybody knows."""
    claims = {"iss": identity.issuer, "aud": AUDIENCE, "sub": "ada", "groups": [GROUP], "exp": int(time.time()) + 600}
    signed = f"{part({'alg': algorithm, 'kid': identity.keys()[0]['kid'], **header})}.{part(claims)}"
    mac = hmac.digest(secret, signed.encode(), hashlib.sha256) if secret else b""
    return f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def public_key(identity: IdentityProvider) -> bytes:
    return RSAKey.import_key(identity.keys()[0]).as_pem(private=False)


FORGERIES: dict[str, Callable[[IdentityProvider], str]] = {
    "no signature": lambda identity: forged(identity, "none"),
    "no signature, in capitals": lambda identity: forged(identity, "NONE"),
    "no signature, as if it had one": lambda identity: forged(identity, "RS256"),
    "the public key as a secret": lambda identity: forged(identity, "HS256", public_key(identity)),
    "the public key, as if it were none": lambda identity: forged(identity, "RS256", public_key(identity)),
    "a key of its own": lambda identity: forged(identity, "RS256", b"x", jwk={"kty": "oct", "k": "eA"}),
    "a key elsewhere": lambda identity: forged(identity, "RS256", b"x", jku="https://evil.example/keys"),
    "an unknown key": lambda identity: forged(identity, "RS256", b"x", kid="../../dev/null"),
    "a key that is no text": lambda identity: forged(identity, "RS256", b"x", kid=["key-1"]),
    "an unknown extension": lambda identity: forged(identity, "RS256", b"x", crit=["b64"], b64=False),
    "a cut signature": lambda identity: identity.token()[:-10],
    "another issuer": lambda identity: identity.token(iss="https://evil.example"),
    "an issuer with more": lambda identity: identity.token(iss=f"{identity.issuer}/"),
    "another audience": lambda identity: identity.token(aud="another-api"),
    "other audiences": lambda identity: identity.token(aud=["another-api", "third"]),
    "the client's audience": lambda identity: identity.token(aud=CLIENT),
    "no audience": lambda identity: identity.token(aud=None),
    "no end": lambda identity: identity.token(exp=None),
    "an end that is no number": lambda identity: identity.token(exp="2099-01-01"),
    "the past": lambda identity: identity.token(exp=int(time.time()) - LEEWAY_S - 60),
    "the future": lambda identity: identity.token(nbf=int(time.time()) + LEEWAY_S + 60),
    "no subject": lambda identity: identity.token(sub=None),
    "a subject like a field": lambda identity: identity.token(sub="ada root"),
    "too long": lambda identity: identity.token(groups=["x" * MAX_TOKEN]),
    "no JWT": lambda _: "a.b.c",
    "nothing": lambda _: "..",
    "not ASCII": lambda _: "é.é.é",
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_or_foreign_jwt_is_refused(provider: Provider, identity: IdentityProvider, forgery: str) -> None:
    person = asyncio.run(provider.verify(identity.token()))
    assert (person.account, person.groups) == ("oidc:ada", (GROUP,))
    said = refusal(provider, FORGERIES[forgery](identity))
    assert "token" in said
    assert len(said) < 1_000


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_rotated_key_is_found_and_the_old_one_counts_no_more(
    provider: Provider, identity: IdentityProvider, clock: Clock, algorithm: str
) -> None:
    before = identity.token()
    asyncio.run(provider.verify(before))
    identity.rotate(algorithm)
    after, asked = identity.token(), identity.set()
    # Anybody can name a key that doesn't exist, which mustn't make the server ask the provider each time.
    for _ in range(3):
        assert "no such key" in refusal(provider, after)
    assert identity.set() == asked
    clock.now += provider_module.AGAIN_S
    assert asyncio.run(provider.verify(after)).account == "oidc:ada"
    assert identity.set() == asked + 1
    assert "no such key" in refusal(provider, before)
    identity.rotate()


def test_a_verified_jwt_is_known_until_its_end(provider: Provider, identity: IdentityProvider, clock: Clock) -> None:
    token = identity.token(exp=int(clock.now) + 60)
    digest = hashlib.sha256(token.encode()).digest()
    assert provider.known(digest) is None
    person = asyncio.run(provider.verify(token))
    assert provider.known(digest) is person
    clock.now += 60 + LEEWAY_S
    assert provider.known(digest) is None
    assert "expired" in refusal(provider, token)


def test_an_address_that_sends_many_codes_leaves_room_for_others(
    provider: Provider, identity: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_module, "ANSWER_S", 1.0)
    identity.set(misbehaves="slow")
    addresses = ["10.0.0.1"] * provider_module.MAX_CODES + ["10.0.0.2"]

    async def sign_in() -> list[BaseException | Person]:
        asked = [provider.person_of_code("x", nonce="", verifier="", address=address) for address in addresses]
        return await asyncio.gather(*asked, return_exceptions=True)

    refused = [isinstance(answer, BusyError) for answer in asyncio.run(sign_in())]
    first = provider_module.MAX_CODES_OF_ADDRESS
    assert refused == [False] * first + [True] * (provider_module.MAX_CODES - first) + [False]
    # The places are free again.
    assert not isinstance(asyncio.run(sign_in())[0], BusyError)
    identity.set(misbehaves="")


@pytest.mark.parametrize("misbehaviour", ["slow", "huge", "issuer"])
def test_a_provider_that_answers_badly_is_given_up_and_known_keys_go_on(
    provider: Provider,
    identity: IdentityProvider,
    clock: Clock,
    misbehaviour: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provider_module, "ANSWER_S", 1.0)
    token = identity.token()
    identity.set(misbehaves=misbehaviour)
    begun = time.monotonic()
    with pytest.raises(UnavailableError, match="doesn't answer"):
        asyncio.run(provider.verify(token))
    asked = identity.set()
    # Bytes that drip don't lengthen the time, and the next requests don't wait.
    assert time.monotonic() - begun < 10
    with pytest.raises(UnavailableError):
        asyncio.run(provider.verify(token))
    assert identity.set(misbehaves="") == asked
    clock.now += 1.0
    asyncio.run(provider.verify(token))
    identity.set(misbehaves=misbehaviour)
    clock.now += provider_module.FRESH_S
    late = identity.token(exp=int(clock.now) + 600)
    assert asyncio.run(provider.verify(late)).account == "oidc:ada"
    clock.now += provider_module.KEPT_S
    later = identity.token(exp=int(clock.now) + 600)
    with pytest.raises(UnavailableError):
        asyncio.run(provider.verify(later))
