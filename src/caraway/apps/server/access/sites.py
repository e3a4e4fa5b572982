"""Refusal of requests that a web page of another site makes a browser send to this server.

A page can make the browser of somebody who has access to the server send requests there. Three headers, which no page
can set itself, show where a request comes from:

* `Host` names the server as the browser knows it. If a page's own name was made to resolve to this machine (DNS
  rebinding), the header has that name. An address can't be made to resolve elsewhere, so any address is accepted.
* `Origin` names the site of the page. Programs send none.
* `Sec-Fetch-Site` shows that the request crosses sites, even if a browser leaves `Origin` out.

A fourth header, `Content-Type`, has to name a type that the endpoint accepts (`check_media_type`). A browser lets a
page send plain text and forms to any server, but JSON only to a server that permits it by CORS headers, which this
server doesn't send.
"""

import socket
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from caraway.apps.server.http.arrival import arrival
from caraway.apps.server.http.endpoints import Endpoint
from caraway.apps.server.http.errors import ForeignHostError, ForeignSiteError, UnsupportedMediaTypeError
from caraway.apps.server.http.messages import Headers, media_type
from caraway.process.settings.server import ServerSettings

# The most values of the header `Host` whose check is cached. Clients can send any number of different ones, so the
# cache needs a bound, while a server has only few names of its own.
KNOWN_HOSTS = 256
ANY = "*"
PORTS = {"http": 80, "https": 443}
# The most characters of a header that an error message quotes.
LONGEST = 100


class Sites:
    """The names under which a server is reached, and the sites whose pages may send requests."""

    def __init__(self, settings: ServerSettings) -> None:
        """Accept this machine's names, `server.host`, `server.allowed_hosts` and `server.allowed_origins`."""
        self._names = {"localhost", socket.gethostname().lower(), settings.host.lower()}
        self._names |= {name.lower() for name in settings.allowed_hosts if not name.startswith(ANY)}
        self._endings = tuple(name[1:].lower() for name in settings.allowed_hosts if name.startswith("*."))
        self._any = ANY in settings.allowed_hosts
        self._origins = frozenset(origin.lower().rstrip("/") for origin in settings.allowed_origins)
        self._is_own = lru_cache(KNOWN_HOSTS)(self._is_own_name)

    def check(self, endpoint: Endpoint, headers: Headers) -> None:
        """Check that no page of another site sends a request, unless the answer only shows if the server works.

        Raises:
            ForeignHostError: The request is addressed to a name that isn't the server's.
            ForeignSiteError: A page of another site sends the request.
        """
        if endpoint.probe:
            return
        host = arrival().host or headers.get("host") or ""
        if not host or not self._is_own(host):
            raise ForeignHostError(
                f"this server isn't {host[:LONGEST]!r}, which the request is addressed to. If it is reached by that "
                "name, add it to server.allowed_hosts (CARAWAY_SERVER__ALLOWED_HOSTS='[\"name\"]')"
            )
        origin = headers.get("origin")
        if origin is not None and origin.lower() in self._origins:
            return
        if origin is not None and not _is_of_host(origin, host):
            raise ForeignSiteError(
                f"a page of {origin[:LONGEST]!r} may not send requests to this server. If it shall, add it to "
                "server.allowed_origins (CARAWAY_SERVER__ALLOWED_ORIGINS='[\"https://name\"]')"
            )
        # A link on another site may open a page of this server. A browser sends GET for it and doesn't let scripts of
        # the other site read the answer. Requests of other methods, which may change something, are refused.
        if endpoint.method != "GET" and (headers.get("sec-fetch-site") or "").lower() == "cross-site":
            raise ForeignSiteError("a page of another site may not send requests to this server (Sec-Fetch-Site)")

    def _is_own_name(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        if self._any or name in self._names or name.endswith(self._endings):
            return bool(name)
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def check_media_type(endpoint: Endpoint, headers: Headers) -> None:
    """Check that an endpoint accepts the media type of a request; a request that names no type is accepted.

    Raises `UnsupportedMediaTypeError` if the endpoint doesn't accept the type.
    """
    given = headers.get("content-type")
    if given is None or not endpoint.accepts or media_type(given) in endpoint.accepts:
        return
    raise UnsupportedMediaTypeError(
        f"{endpoint.path} doesn't take a body of type {given[:LONGEST]!r}; Content-Type is one of "
        f"{', '.join(endpoint.accepts)}"
    )


def _is_of_host(origin: str, host: str) -> bool:
    """Return whether an origin has the name and port of a `Host` header.

    The scheme isn't compared: a proxy in front of the server may end TLS, which the browser sees and the server
    doesn't.
    """
    try:
        page = urlsplit(origin)
        default = PORTS.get(page.scheme)
        server = urlsplit(f"//{host}")
        same = page.hostname == server.hostname and (page.port or default) == (server.port or default)
    except ValueError:
        return False
    return default is not None and same
