"""The choice of TCP ports: free ones, below the range from which systems take ports for outgoing connections."""

import errno
import random
import socket
import sys
from collections.abc import Iterable

from caraway.apps.stack.errors import PortInUseError
from caraway.process.settings.errors import ConfigurationError

# Systems take ports for outgoing connections from 32768-60999 (Linux) and 49152-65535 (macOS). A port of these ranges
# might be in use when a stack restarts, so a stack chooses lower ones.
FIRST, LAST = 20_000, 32_000
# The number of consecutive ports that are tried, from the preferred one on. One machine has room for fewer stacks than
# that, so if none of these ports is free, other programs hold the rest.
NEXT_PORTS = 200


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether this process could listen on a port now."""
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        # Without this option a port would count as taken while old connections linger on it. Servers set it, too.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def choose(host: str = "127.0.0.1", avoid: Iterable[int] = ()) -> int:
    """Return a free port. Raises `PortInUseError` if a hundred attempts found none."""
    taken = set(avoid)
    for _ in range(100):
        # Each attempt takes a random port, so that two stacks that start at the same moment rarely try the same one.
        port = random.randrange(FIRST, LAST)  # noqa: S311 (no secret)
        if port not in taken and is_free(port, host):
            return port
    raise PortInUseError(f"Of a hundred ports between {FIRST} and {LAST} none was free on {host}. What holds them all?")


def reserve(port: int, host: str = "127.0.0.1") -> socket.socket:
    """Reserve a port for a server of this user that is about to be started, until the socket is closed.

    While the server is down, no program of another user can take the port, and no other stack can choose it. On Linux
    the server can listen nevertheless, since sockets of one user that set SO_REUSEPORT share a port. On other systems
    the port is only probed, and the returned socket is closed.

    Raises:
        PortInUseError: The port is taken.
        ConfigurationError: This user can't listen there, because the address is not of this machine, or the port is
            only for root.
    """
    held = socket.socket(_family(host), socket.SOCK_STREAM)
    try:
        # Without this option a port would count as taken while old connections linger on it. Servers set it, too.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, port))
    except OSError as error:
        held.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(f"Port {port} on {host} is taken by another program.") from error
        raise ConfigurationError(
            f"The server can't listen on port {port} of {host}: {error.strerror}. Name an address of this machine with "
            "CARAWAY_SERVER__HOST, and a port that this user may use with CARAWAY_SERVER__PORT."
        ) from error
    if sys.platform != "linux":
        held.close()
        return held
    # The server that will listen here runs as the same user and sets SO_REUSEPORT, too, so it can bind the port while
    # this socket holds it. With SO_REUSEADDR on this socket, any program that sets it could bind the port as well.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return held


def reserve_from(first: int, host: str = "127.0.0.1", avoid: Iterable[int] = ()) -> tuple[int, socket.socket]:
    """Reserve the first free port from a number on; return it and the socket that holds it (`reserve`).

    Raises `PortInUseError` if no port is free, and `ConfigurationError` as `reserve` does.
    """
    taken = set(avoid)
    for port in range(first, first + NEXT_PORTS):
        if port in taken:
            continue
        try:
            return port, reserve(port, host)
        except PortInUseError:
            continue
    raise PortInUseError(
        f"None of the ports {first} to {first + NEXT_PORTS - 1} is free on {host}. Name another with the variable "
        "CARAWAY_SERVER__PORT."
    )


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
