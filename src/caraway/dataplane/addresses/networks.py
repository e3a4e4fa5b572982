"""The networks that connectors may reach: which addresses are refused, and the words for it."""

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path

Address = IPv4Address | IPv6Address

# The networks of the services from which machines in clouds get their identity and keys, in this order: the link-local
# networks of IPv4 and of IPv6, which AWS, Google and Azure use; by IPv6 AWS, then Google, then Scaleway; the agent of
# Azure; Alibaba; Oracle.
METADATA = tuple(
    ip_network(text)
    for text in (
        "169.254.0.0/16",
        "fe80::/10",
        "fd00:ec2::/32",
        "fd20:ce::/32",
        "fd00:42::42/128",
        "168.63.129.16/32",
        "100.100.100.200/32",
        "192.0.0.192/32",
    )
)
# The prefixes under which IPv6 networks reach the IPv4 address in the last 32 bits (RFC 6052, 8215, 4291, 7915).
_TRANSLATED = tuple(map(ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96")))
# The port of DNS servers. Libraries resolve names in the thread whose connections are checked, so these servers may be
# reached.
_NAMES = 53
_NAME_SERVERS = Path("/etc/resolv.conf")
# Seconds for which the addresses of a host name are cached.
_KEPT_S = 30.0


@dataclass(frozen=True, slots=True)
class Service:
    """A service of the platform itself.

    Attributes:
        name: Its name, for people.
        host: Its host.
        port: Its port.
        shared: True if sources and sinks may use it, apart from what the platform itself keeps there.
    """

    name: str
    host: str
    port: int
    shared: bool = False


@dataclass(slots=True)
class Networks:
    """The networks that connectors may reach. Thread safe.

    Attributes:
        networks: The networks.
        loopback: True if this machine may be reached as well.
        services: Returns the platform's own services.
        endpoints: The hosts and ports that the operator has named as the addresses of systems.
    """

    networks: Sequence[IPv4Network | IPv6Network]
    loopback: bool
    services: Callable[[], Iterable[Service]]
    endpoints: Sequence[tuple[str, int]] = ()
    _known: dict[str, tuple[float, frozenset[Address]]] = field(default_factory=dict)
    # All addresses to which the host names of services have ever resolved. A service is assumed to be at each of them,
    # even while its name resolves to another address, or to none.
    _had: dict[str, frozenset[Address]] = field(default_factory=dict)

    def refusal(self, text: str, port: int, *, metadata: bool = False) -> str:
        """Return why an address isn't reached, and what to do about it; empty if it is.

        Args:
            text: An IP address. Anything else is refused.
            port: The port of it.
            metadata: True if the connector may use the server's identity, which a cloud's metadata service tells.
        """
        try:
            address = plain(text)
        except ValueError:
            return f"{text[:100]} is no IP address, so sources and sinks don't connect to it"
        shown = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
        if port == _NAMES and address in _name_servers():
            return ""
        if any(address in network for network in METADATA):
            if metadata:
                return ""
            return f"sources and sinks never connect to {shown}, where clouds tell a machine's identity"
        for service in self.services():
            if service.port == port and self._is_at(address, service.host):
                if service.shared:
                    return ""
                return f"sources and sinks never connect to {shown}, which is the platform's own {service.name}" + (
                    "; if that is your own server, and other data in it is meant, the operator can set "
                    "connectors.own_services=true"
                    if service.name in {"Kafka", "Postgres"}
                    else ""
                )
        if any(known == port and address in self._addresses(host) for host, known in self.endpoints):
            return ""
        for service in self.services():
            if service.port == port and not service.shared and not self._had.get(service.host):
                return (
                    f"sources and sinks don't connect to {shown} now: the host {service.host} of the platform's own "
                    f"{service.name} isn't known, so that may be its address"
                )
        if is_local(address):
            if self.loopback:
                return ""
            return (
                f"sources and sinks don't connect to {shown}, which is the server's own machine; if everybody who may "
                "commit may reach what listens there, as on a laptop, the operator can set connectors.loopback=true "
                "(in caraway.toml, or as the variable CARAWAY_CONNECTORS__LOOPBACK)"
            )
        if any(address in network for network in self.networks):
            return ""
        return f"sources and sinks don't connect to {shown}, which is in none of the networks of connectors.networks"

    def _is_at(self, address: Address, host: str) -> bool:
        """Return whether a service is at an address, which may be another one of this machine."""
        at = self._had.get(host, frozenset()) | self._addresses(host)
        # Another thread may be pickling the old dictionary for a connector's process, so a new one takes its place.
        self._had = {**self._had, host: at}
        return address in at or (is_local(address) and any(is_local(each) for each in at))

    def _addresses(self, host: str) -> frozenset[Address]:
        known = self._known.get(host)
        now = time.monotonic()
        if known is None or now > known[0] or not known[1]:
            known = self._known[host] = (now + _KEPT_S, frozenset(addresses_of(host)) or (known or (0, frozenset()))[1])
        return known[1]


def _name_servers() -> Iterator[Address]:
    """Yield the addresses of the servers of names of this machine."""
    try:
        lines = _NAME_SERVERS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        match line.split():
            case ["nameserver", address, *_]:
                with suppress(ValueError):
                    yield plain(address)


def plain(text: str) -> Address:
    """Return an address; that of IPv4 if it is one in the form of IPv6. Raises `ValueError` for another text."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        # `::` (no address) and `::1` (this machine) are below `::/96`, too, but translate nothing.
        if int(address) > 1 and any(address in prefix for prefix in _TRANSLATED):
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_local(address: Address) -> bool:
    """Return whether an address is one of this machine."""
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def addresses_of(host: str) -> list[Address]:
    """Return the addresses of a host; none if its name isn't known."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [plain(str(each[4][0])) for each in found]
