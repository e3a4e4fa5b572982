"""The session of a browser: its id in a cookie, the branch in the address, and errors as pages.

The cookie has the random id of a session in Postgres (`caraway.state.access`), never the token with which somebody has
signed in: browsers send cookies to all ports of a host. Scripts can't read the cookie (HttpOnly), and pages of other
sites can't make a browser send it (SameSite=Strict). A form also has a code that is computed from the id, and its
request must come from a page of this server.
"""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

from caraway.apps.server.console.rendering import link, render
from caraway.apps.server.http.arrival import came_by_tls
from caraway.apps.server.http.errors import ForeignSiteError, status_of
from caraway.apps.server.http.messages import BRANCH_HEADERS, Headers, HttpResponse, Request
from caraway.errors import ForbiddenError, InvalidInputError, UnauthenticatedError, shortened
from caraway.state.model import MAIN

COOKIE = "caraway_session"
# Browsers accept a cookie whose name has this prefix only if this very host has sent it over TLS, for all of its paths.
# So no other port without TLS, and no neighbouring host, can set the cookie.
OVER_TLS = "__Host-"
# The most fields of a form or an address, and the most cookies of a request that are looked at. A form that gives a
# token its roles has a field for each role.
MAX_FIELDS, MAX_COOKIES = 1_000, 200
# A session ends after this time, so that a browser that is left somewhere doesn't stay signed in for ever.
LASTING = timedelta(hours=12)
# The most characters of an address to which a browser goes after the sign-in.
LONGEST_ADDRESS = 2_000
FORM = "application/x-www-form-urlencoded"
HOME = "/console"
SIGN_IN = "/console/sign-in"
# The forms that can be sent without a token.
OPEN_PAGES = frozenset({SIGN_IN, "/console/sign-out"})
# Headers of all pages. Nothing is loaded from other servers, no script runs, and no other page may show a page of the
# console in a frame. The referrer is sent only to this server; without any, browsers would send forms with the origin
# `null`.
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
    """The headers of a request of a browser, with the session of the cookie and the address's branch as headers."""

    def __init__(self, headers: Headers, query_string: str) -> None:
        self._headers = headers
        given = fields_in(query_string).get("branch")
        self._branch = given[-1] if given else None

    def get(self, key: str, default: str | None = None) -> str | None:
        """Return the value of a header."""
        if key == "authorization":
            session = session_in(self._headers)
            return default if session is None else f"Session {session}"
        if key in BRANCH_HEADERS:
            return self._branch or default
        if key == "accept":
            # A page calls endpoints of the API internally and needs their answers in JSON, whatever the browser
            # accepts.
            return default
        return self._headers.get(key, default)


class Console:
    """The manner of all pages of the console (`caraway.apps.server.http.endpoints.Page`)."""

    def headers(self, headers: Headers, query_string: str) -> Headers:
        """Return the headers of a request with the session and the branch."""
        return PageHeaders(headers, query_string)

    def refusal(self, error: Exception, path: str, query_string: str, headers: Headers) -> HttpResponse:
        """Return a page about an error. A person who isn't signed in gets the page to sign in, and comes back."""
        status = status_of(error)
        here = f"{path}?{query_string}" if query_string else path
        if isinstance(error, UnauthenticatedError):
            if headers.get("sec-fetch-site") == "cross-site" and session_in(headers) is None:
                # The request comes from a link on another site. Browsers leave a SameSite=Strict cookie out then, and
                # send it when a page of this server asks again.
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


def session_in(headers: Headers) -> str | None:
    """Return the id of the session in the cookie of a request; None without one."""
    return cookie_in(headers, COOKIE)


def cookie_in(headers: Headers, name: str) -> str | None:
    """Return the value of a cookie of a request, by TLS only of one that TLS protects; None without one."""
    # The cookies are parsed here, since the time of http.cookies grows with the square of a hostile header, and the
    # header is read before the caller is known.
    parts = (part.strip().partition("=") for part in (headers.get("cookie") or "").split(";", MAX_COOKIES))
    found = {key: value for key, _, value in reversed([*parts]) if key in {name, OVER_TLS + name} and value}
    return found.get(OVER_TLS + name) or (None if came_by_tls() else found.get(name))


def is_over_tls(headers: Headers) -> bool:
    """Return whether a browser has sent a form over TLS, to this server or to a proxy in front of it."""
    # The origin has the scheme that the browser uses, even if `server.trusted_proxies` doesn't list the proxy that ends
    # TLS.
    return came_by_tls() or (headers.get("origin") or "").startswith("https:")


def cookie_of(name: str, value: str, lasting: timedelta, *, tls: bool, same_site: str = "Strict") -> str:
    """Return the header that gives a browser a cookie for some time; with an empty value it takes the cookie away."""
    where = f"{OVER_TLS}{name}={value}; Path=/; Secure" if tls else f"{name}={value}; Path={HOME}"
    seconds = int(lasting.total_seconds()) if value else 0
    return f"{where}; Max-Age={seconds}; HttpOnly; SameSite={same_site}"


def code_of(headers: Headers) -> str:
    """Return the code that forms of a session have; who lacks the id of the session can't compute it."""
    return hmac.digest((session_in(headers) or "").encode(), b"caraway console form", hashlib.sha256).hex()


def form_of(body: bytes, headers: Headers, *, signed_in: bool = True) -> dict[str, str]:
    """Return the fields of a form that a page of this server sent; of several with one name the last one.

    Raises:
        ForeignSiteError: Another page, or a program, sent it.
        ForbiddenError: The form is of another session.
    """
    # `Sites` has already compared any other origin with the server's name.
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
    # `urlsplit` ignores tabs and line ends, but they would get into a header of the answer, so such an address isn't
    # used.
    plain = wanted.isascii() and wanted.isprintable() and " " not in wanted and "\\" not in wanted
    if not plain or len(wanted) > LONGEST_ADDRESS:
        return HOME
    parts = urlsplit(wanted)
    inside = parts.path == HOME or parts.path.startswith(f"{HOME}/")
    return wanted if inside and not parts.scheme and not parts.netloc else HOME
