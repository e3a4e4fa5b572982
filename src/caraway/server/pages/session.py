"""The session of a browser: the token in a cookie, the branch in the address, and errors as pages.

The cookie has the token itself, so the server keeps no sessions, and a revoked token ends its sessions. Scripts can't
read the cookie (HttpOnly), and pages of other sites can't make a browser send it (SameSite=Strict). A form also has a
code that is computed from the token, and its request must come from a page of this server.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from caraway.console.rendering import link, render
from caraway.errors import ForbiddenError, InvalidInputError, UnauthenticatedError, shortened
from caraway.server.http.errors import ForeignSiteError, status_of
from caraway.server.http.messages import BRANCH_HEADERS, Headers, HttpResponse, Request
from caraway.state.model import MAIN

COOKIE = "caraway_token"
# The most fields of a form or an address, and the most cookies of a request that are looked at. A form that gives a
# token its roles has a field for each role.
MAX_FIELDS, MAX_COOKIES = 1_000, 200
# A cookie ends after this time, so that a browser that is left somewhere doesn't stay signed in for ever.
COOKIE_SECONDS = 12 * 3600
FORM = "application/x-www-form-urlencoded"
HOME = "/console"
SIGN_IN = "/console/sign-in"
# The forms that can be sent without a token.
OPEN_PAGES = frozenset({SIGN_IN, "/console/sign-out"})
# Nothing is loaded from anywhere but this server, no script runs, and no other page may show one of these in a frame.
# The referrer is kept within the site: without any, browsers would send forms with the origin `null`.
SECURITY: tuple[tuple[str, str], ...] = (
    (
        "content-security-policy",
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("referrer-policy", "same-origin"),
    ("x-content-type-options", "nosniff"),
)
# The remedy of an error, by its status.
REMEDIES: Mapping[int, str] = {
    400: "Check the address, or go back and change what you entered.",
    403: "Ask whoever gives out roles for one that allows it (`caraway roles`), or sign in with another token.",
    404: "Look it up in the catalog; it may be on another branch, or have been removed.",
    409: "Somebody changed something meanwhile. Look again, then repeat it if it is still right.",
    422: "Check the values that you entered; the message says which of them don't fit.",
    429: "Wait a moment, then load the page again.",
    500: "Look for the id in the server's log. If it happens again, report it with that part of the log.",
    503: "The server finds the part again by itself when it is back; load the page again in a moment.",
    504: "Load the page again; if it happens often, the server has too much to do.",
}


class UnreadableFieldError(InvalidInputError):
    """A field of a form isn't JSON within the bounds."""


class PageHeaders:
    """The headers of a request of a browser, with the cookie as the token and the address's branch as the header."""

    def __init__(self, headers: Headers, query_string: str) -> None:
        self._headers = headers
        given = fields_in(query_string).get("branch")
        self._branch = given[-1] if given else None

    def get(self, key: str, default: str | None = None) -> str | None:
        """Return the value of a header."""
        if key == "authorization":
            token = token_in(self._headers)
            return default if token is None else f"Bearer {token}"
        if key in BRANCH_HEADERS:
            return self._branch or default
        return self._headers.get(key, default)


class Console:
    """The manner of all pages of the console (`caraway.server.http.endpoints.Page`)."""

    def headers(self, headers: Headers, query_string: str) -> Headers:
        """Return the headers of a request with the token and the branch."""
        return PageHeaders(headers, query_string)

    def refusal(self, error: Exception, path: str, query_string: str, headers: Headers) -> HttpResponse:
        """Return a page about an error. A person who isn't signed in gets the page to sign in, and comes back."""
        status = status_of(error)
        here = f"{path}?{query_string}" if query_string else path
        if isinstance(error, UnauthenticatedError):
            if headers.get("sec-fetch-site") == "cross-site" and token_in(headers) is None:
                # A link on another site: browsers leave a strict cookie out at first, and send it when a page of this
                # server asks again.
                return html(render("again.html", here=here))
            return redirect(link("/sign-in", next=here if path != SIGN_IN else None))
        text = render(
            "error.html",
            branch=MAIN,
            status=status,
            message=shortened(str(error), 2_000),
            remedy=REMEDIES.get(status, "Go back, and try again."),
            here=here,
        )
        return html(text, status)


CONSOLE = Console()


def html(text: str, status: int = 200, refresh: int | None = None) -> HttpResponse:
    """Return a page, which no cache may keep, and which a browser loads again after `refresh` seconds."""
    headers = [("content-type", "text/html; charset=utf-8"), ("cache-control", "no-store"), *SECURITY]
    if refresh is not None:
        headers.append(("refresh", str(refresh)))
    return HttpResponse(status, headers, text.encode())


def redirect(address: str, *cookies: str) -> HttpResponse:
    """Return the answer that leads a browser to another page of the console."""
    headers = [("location", address), ("content-type", "text/html; charset=utf-8"), ("cache-control", "no-store")]
    return HttpResponse(303, [*headers, *(("set-cookie", cookie) for cookie in cookies)], b"")


def token_in(headers: Headers) -> str | None:
    """Return the token in the cookie of a request; None without one."""
    # The time of http.cookies grows with the square of a hostile header, and the header is read before the caller is
    # known.
    cookies = (part.strip().partition("=") for part in (headers.get("cookie") or "").split(";", MAX_COOKIES))
    return next((value for name, _, value in cookies if name == COOKIE and value), None)


def cookie_of(token: str, headers: Headers) -> str:
    """Return the header that gives a browser its token; an empty token takes it away."""
    # The origin has the scheme that the browser sees, also if a proxy in front of the server ends TLS.
    secure = "; Secure" if (headers.get("origin") or "").startswith("https:") else ""
    seconds = COOKIE_SECONDS if token else 0
    return f"{COOKIE}={token}; Path={HOME}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


def code_of(headers: Headers) -> str:
    """Return the code that forms of a session have; who lacks the token can't compute it."""
    return hmac.digest((token_in(headers) or "").encode(), b"caraway console form", hashlib.sha256).hex()


def form_of(body: bytes, headers: Headers, *, signed_in: bool = True) -> dict[str, str]:
    """Return the fields of a form that a page of this server sent; of several with one name the last one.

    Raises:
        ForeignSiteError: Another page, or a program, sent it.
        ForbiddenError: The form is of another session.
    """
    # `Sites` has compared an origin that is there with the server's name.
    if headers.get("origin") in {None, "null"} and headers.get("sec-fetch-site") != "same-origin":
        raise ForeignSiteError("a form of the console may be sent by its own pages only")
    fields = {name: values[-1] for name, values in fields_in(body.decode("utf-8", "replace")).items()}
    if signed_in and not hmac.compare_digest(fields.get("code", "").encode(), code_of(headers).encode()):
        raise ForbiddenError("the form is of another session; load its page again")
    return fields


def form_fields(body: bytes, name: str) -> list[str]:
    """Return all values of the fields of a form that have one name; `form_of` has checked the form."""
    return [value for value in fields_in(body.decode("utf-8", "replace")).get(name, []) if value]


def fields_in(text: str) -> dict[str, list[str]]:
    """Return the fields of a form or an address, each with its values. Raises `InvalidInputError` for too many."""
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise InvalidInputError(f"there are more than {MAX_FIELDS:,} fields; send fewer") from None


async def json_of(request: Request[Any, Any], text: str, noun: str, *, empty: object = None) -> Any:
    """Return the value of a field in JSON, or `empty`; the bounds are those of `Request.values`.

    Raises `UnreadableFieldError`, and the other errors of `Request.values`.
    """
    try:
        return await request.values(text.encode()) if text else empty
    except InvalidInputError as error:
        raise UnreadableFieldError(f"{noun} {error}") from None


def page_after(wanted: str) -> str:
    """Return the address to go to after signing in: the wanted one if it is a page of the console, else the first."""
    parts = urlsplit(wanted)
    inside = parts.path == HOME or parts.path.startswith(f"{HOME}/")
    return wanted if inside and not parts.scheme and not parts.netloc and "\\" not in wanted else HOME
