"""Commands that sign the user in and out at the identity provider of a server, so that nobody copies tokens.

The browser comes back to a port of this machine (RFC 8252), with a code that only this process can use (PKCE, RFC
7636). The token that it gets for the code is kept for later commands, which renew it.
"""

import html
import time
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import typer
from authlib.common.security import generate_token
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import OAuth2Client

from caraway.apps.cli.connection import send
from caraway.apps.cli.logins import Login, Logins
from caraway.apps.cli.options import command
from caraway.apps.cli.output import err
from caraway.apps.cli.remote import OK, ServerOptions
from caraway.client.discovery import ServerAddress
from caraway.client.response import refusal
from caraway.errors import InvalidInputError, UnauthenticatedError, UnavailableError
from caraway.process.settings.oidc import is_safe

# Seconds for which the command waits until the browser comes back, and for an answer of the provider.
WAIT_S, ANSWER_S = 300.0, 15.0
# The lifetime in seconds that is assumed for a token if the provider doesn't state one.
UNTOLD_S = 300.0
# OAuth's name of the authentication method of a client without a secret: it doesn't authenticate itself.
PUBLIC = "none"
PAGE = "<!doctype html><meta charset=utf-8><title>Caraway</title><p>{text}</p>"
DONE = "The command has the answer of the identity provider. This page can be closed."

BrowserOption = Annotated[
    bool, typer.Option("--browser/--no-browser", help="Open the browser, or only print the address to open.")
]


@command
def login(server: ServerOptions, *, browser: BrowserOption = True) -> None:
    """Sign in at the identity provider of a server.

    Later commands send a token of this sign-in to this server, unless they are given another one.
    """
    address = _address(server)
    if not is_safe(address.url):
        raise InvalidInputError(f"{address.url} is reached in clear, where others could read the token: use https")
    about = _about(address)
    document = _document(about["issuer"])
    with _returned() as back:
        client = _client(about["client_id"], scope=" ".join(about["scopes"]), redirect_uri=back.address)
        verifier = generate_token(64)
        # The nonce would allow checking OpenID Connect's ID token. This command reads nothing from that token, so it
        # doesn't store the nonce.
        asked, state = client.create_authorization_url(
            document["authorization_endpoint"], code_verifier=verifier, nonce=generate_token(32)
        )
        # A malicious server could name another server's provider here, to get tokens that the other server accepts. So
        # people see which provider's token the server will get.
        err.print(f"{address.url} will get a token of {about['issuer']}", markup=False, soft_wrap=True)
        err.print(f"Sign in at {asked}", markup=False, soft_wrap=True)
        if browser:
            webbrowser.open(asked)
        answer = back.wait(state)
    with _refusals(about["issuer"]):
        given = client.fetch_token(
            document["token_endpoint"], authorization_response=answer, code_verifier=verifier, state=state
        )
    empty = Login(
        issuer=about["issuer"],
        client_id=about["client_id"],
        token_endpoint=document["token_endpoint"],
        revocation_endpoint=document.get("revocation_endpoint", ""),
        access_token="",
        refresh_token="",
        expires_at=0.0,
    )
    Logins().keep(address.url, _with(empty, given))
    err.print(f"Signed in to {address.url}", markup=False, soft_wrap=True)


@command
def logout(server: ServerOptions) -> None:
    """Forget the sign-in for a server, and end it.

    The provider gives no further tokens for it. The last token counts until its end, some minutes later.
    """
    url = _address(server).url
    gone = Logins().forget(url)
    if gone is not None and gone.revocation_endpoint and gone.refresh_token:
        # `forget` has removed the tokens from this machine, so an error of the provider is ignored.
        with suppress(OAuthError, httpx2.HTTPError):
            _client(gone.client_id).revoke_token(gone.revocation_endpoint, gone.refresh_token, "refresh_token")
    err.print(f"Signed out of {url}" if gone else f"Nobody has signed in to {url}", markup=False, soft_wrap=True)


def renew(login: Login) -> Login:
    """Return a sign-in with a new token.

    Raises:
        UnauthenticatedError: The provider has ended the sign-in.
        UnavailableError: It doesn't answer.
    """
    with _refusals(login.issuer):
        given = _client(login.client_id).refresh_token(login.token_endpoint, login.refresh_token)
    return _with(login, given)


def _address(server: ServerOptions) -> ServerAddress:
    """Return the server without a token: an earlier sign-in may have ended."""
    return replace(server, token="").address


def _with(login: Login, given: Mapping[str, Any]) -> Login:
    """Return a sign-in with the tokens of an answer; a provider may leave the refresh token as it is."""
    return replace(
        login,
        access_token=given["access_token"],
        refresh_token=given.get("refresh_token") or login.refresh_token,
        expires_at=float(given.get("expires_at") or time.time() + UNTOLD_S),
    )


def _about(address: ServerAddress) -> Mapping[str, Any]:
    """Return the provider of a server, and how commands sign in there."""
    answer = send("GET", "/sign-in", address, headers={})
    if answer.status_code != OK:
        raise refusal(answer, "GET /sign-in")
    about: Mapping[str, Any] = answer.json()
    return about


def _document(issuer: str) -> Mapping[str, Any]:
    """Return what a provider tells of itself (OpenID Connect Discovery)."""
    if not is_safe(issuer):
        raise InvalidInputError(f"the identity provider {issuer} is reached in clear, so it can't be trusted")
    try:
        found = httpx2.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration", timeout=ANSWER_S)
        document: Mapping[str, Any] = found.raise_for_status().json()
    except (httpx2.HTTPError, ValueError) as error:
        raise UnavailableError(f"the identity provider {issuer} doesn't answer: {error}") from error
    named = [document.get(name) for name in ("issuer", "authorization_endpoint", "token_endpoint")]
    # A provider need not have an address at which sign-ins end. Then the address of the provider itself is checked
    # twice.
    named.append(document.get("revocation_endpoint", issuer))
    if named[0] != issuer or not all(isinstance(url, str) and is_safe(url) for url in named):
        raise UnavailableError(f"the identity provider {issuer} describes itself as another one, or without addresses")
    return document


def _client(client_id: str, **more: Any) -> OAuth2Client:
    """Return a public client: whatever a program has that everybody may install, it has no secret."""
    return OAuth2Client(
        client_id, token_endpoint_auth_method=PUBLIC, code_challenge_method="S256", timeout=ANSWER_S, **more
    )


@contextmanager
def _refusals(issuer: str) -> Iterator[None]:
    try:
        yield
    except OAuthError as error:
        raise UnauthenticatedError(
            f"the identity provider {issuer} refuses ({error.description or error.error}); sign in by `caraway login`"
        ) from error
    except (httpx2.HTTPError, ValueError) as error:
        raise UnavailableError(f"the identity provider {issuer} doesn't answer: {error}") from error


class _Returns(ThreadingHTTPServer):
    """The port to which the browser comes back; a connection that says nothing doesn't keep others waiting."""

    # With this setting, `server_close` waits for the threads that answer the browser. So the browser gets its page
    # before the command ends.
    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Return)
        self.timeout = 0.2
        self._state = ""
        self.answer = ""

    @property
    def address(self) -> str:
        """The address to which the provider sends the browser."""
        return f"http://127.0.0.1:{self.server_port}/"

    def takes(self, path: str) -> bool:
        """Keep a request with the state of this sign-in, and return whether it is one."""
        query = parse_qs(urlsplit(path).query)
        if urlsplit(path).path != "/" or query.get("state") != [self._state]:
            return False
        self.answer = f"{self.address}?{urlsplit(path).query}"
        return True

    def wait(self, state: str) -> str:
        """Return the address with which the browser has come back; requests of others are refused.

        Raises:
            UnauthenticatedError: The provider has refused.
            UnavailableError: Nobody has signed in in time.
        """
        self._state = state
        until = time.monotonic() + WAIT_S
        while not self.answer:
            if time.monotonic() > until:
                raise UnavailableError(f"nobody has signed in within {WAIT_S:.0f} s")
            self.handle_request()
        query = parse_qs(urlsplit(self.answer).query)
        if "error" in query:
            reason = query.get("error_description", query["error"])[0]
            raise UnauthenticatedError(f"the identity provider refuses: {reason}")
        return self.answer


class _Return(BaseHTTPRequestHandler):
    """A request to that port."""

    server: _Returns
    timeout = 5.0

    def do_GET(self) -> None:
        """Answer with a page."""
        taken = self.server.takes(self.path)
        page = PAGE.format(text=html.escape(DONE if taken else "This is no sign-in that was begun here.")).encode()
        self.send_response(200 if taken else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Print nothing: the address has the code."""
        del format, args


@contextmanager
def _returned() -> Iterator[_Returns]:
    server = _Returns()
    try:
        yield server
    finally:
        server.server_close()
