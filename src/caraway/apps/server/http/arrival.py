"""The way on which a request has come: by TLS or in clear, from which address, and under which name of the server.

A proxy in front of the server tells these in headers (`Forwarded`, `X-Forwarded-For`, `-Proto` and `-Host`). Every
client can send such headers, so they are believed only if the connection comes from an address that
`server.trusted_proxies` lists.
"""

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from caraway.apps.server.http.messages import AllHeaders, RsgiScope

HTTPS = "https"
# The most proxies on the way of a request that are looked at.
MAX_STEPS = 20
# The most connections for which the way of their requests is kept, so that a connection's address is parsed once.
CONNECTIONS = 4096


@dataclass(frozen=True, slots=True)
class Arrival:
    """The way of a request.

    Attributes:
        by_tls: True if the client has sent it by TLS, to this server or to a trusted proxy.
        address: The address of the client, without its port; empty if it isn't known.
        host: The name of the server as the client knows it, if a trusted proxy tells it; else None, and the header
            `Host` has the name.
    """

    by_tls: bool = False
    address: str = ""
    host: str | None = None

    @property
    def told(self) -> dict[str, str]:
        """The headers by which a process of the server tells another one, to which it passes the request on."""
        return {"x-forwarded-proto": HTTPS if self.by_tls else "http", "x-forwarded-for": self.address}


_UNKNOWN = Arrival()
_ARRIVAL: ContextVar[Arrival] = ContextVar("arrival", default=_UNKNOWN)


def arrival() -> Arrival:
    """Return the way of the request that is being answered in this task."""
    return _ARRIVAL.get()


def came_by_tls() -> bool:
    """Return whether the client sent the request under way by TLS, so that its cookies may be for TLS only."""
    return _ARRIVAL.get().by_tls


class Proxies:
    """The proxies that are believed."""

    def __init__(self, trusted: Iterable[str] = (), *, everybody: bool = False) -> None:
        """Believe connections from these addresses and networks, such as `10.0.0.5` and `10.1.0.0/16`.

        Args:
            trusted: The addresses and networks.
            everybody: True: all connections are believed, because only processes of the server itself can make any.
        """
        self._networks: Sequence[IPv4Network | IPv6Network] = [ip_network(each, strict=False) for each in trusted]
        self._everybody = everybody
        self._none = not self._networks and not everybody

    def note(self, request: RsgiScope) -> None:
        """Keep the way of a request for `arrival`, for the rest of its task."""
        direct = _direct(request.client, request.scheme == HTTPS)
        by_tls, peer = direct.by_tls, direct.address
        if self._none or not self.believes(peer):
            _ARRIVAL.set(direct)
            return
        steps = _forwarded(request.headers) or _x_forwarded(request.headers)
        if not steps:
            _ARRIVAL.set(direct)
            return
        # Each proxy appends a step. The last step is of the proxy that was found to be trusted. An earlier step is
        # believed only if the address in the step behind it is also one of a trusted proxy.
        nearest = steps[-1]
        address = peer
        for step in reversed(steps[-MAX_STEPS:]):
            if not (named := _address_of(step.get("for", ""))):
                break
            address = named
            if self._everybody or not self.believes(address):
                break
        scheme = nearest.get("proto", "").lower()
        _ARRIVAL.set(Arrival(scheme == HTTPS if scheme else by_tls, address, nearest.get("host") or None))

    def believes(self, address: str) -> bool:
        """Return whether an address is that of a proxy that is believed."""
        if self._everybody:
            return True
        try:
            found = ip_address(address)
        except ValueError:
            return False
        # A socket of IPv6 shows clients of IPv4 as ::ffff:10.0.0.5.
        found = getattr(found, "ipv4_mapped", None) or found
        return any(found in network for network in self._networks)


@lru_cache(maxsize=CONNECTIONS)
def _direct(client: str, by_tls: bool) -> Arrival:  # noqa: FBT001 (a cached function takes its arguments by position)
    """Return the way of a request without the word of a proxy.

    Reading the address takes 8 us, a sixth of a small query, and a connection that is kept has one for all requests.
    """
    return Arrival(by_tls, _address_of(client))


def _forwarded(headers: AllHeaders) -> list[dict[str, str]]:
    """Return the steps of the header `Forwarded` (RFC 7239)."""
    steps = []
    for part in _values(headers, "forwarded"):
        pairs = (pair.partition("=") for pair in part.split(";"))
        steps.append({name.strip().lower(): value.strip().strip('"') for name, _, value in pairs})
    return steps


def _x_forwarded(headers: AllHeaders) -> list[dict[str, str]]:
    """Return the steps of the headers `X-Forwarded-…`; the nearest proxy's protocol and name are of the last one."""
    steps = [{"for": each} for each in _values(headers, "x-forwarded-for")]
    for name in ("proto", "host"):
        if values := _values(headers, f"x-forwarded-{name}"):
            steps = steps or [{}]
            steps[-1][name] = values[-1]
    return steps


def _values(headers: AllHeaders, name: str) -> list[str]:
    """Return the values of a list, which may be in several headers of one name: those of proxies are the last ones."""
    return [value for line in headers.get_all(name) for part in line.split(",") if (value := part.strip())]


def _address_of(node: str) -> str:
    """Return the address in `10.0.0.5`, `10.0.0.5:47011`, `::1`, `[::1]:47011`; empty if there is none."""
    host = node.strip().strip('"')
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        return str(ip_address(host))
    except ValueError:
        return ""
