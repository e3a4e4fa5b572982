"""The choice of TCP ports: free ones, below the range from which systems take ports for outgoing connections."""

import random
import socket
import sys
from collections.abc import Iterable

from caraway.stack.errors import PortInUseError

# Outgoing connections use 32768-60999 on Linux, 49152-65535 on macOS; such a port might be taken when a stack restarts.
FIRST, LAST = 20_000, 32_000
# The number of ports after the wanted one that are tried; fewer stacks than that fit on one machine.
NEXT_PORTS = 200


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether this process could listen on a port now."""
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        # Servers set this option, too: old connections that linger in TIME_WAIT don't make a port taken.
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
        # The first port is random, so that two stacks that start at the same moment don't try the same ports in turn.
        port = random.randrange(FIRST, LAST)  # noqa: S311 (no secret)
        if port not in taken and is_free(port, host):
            return port
    raise PortInUseError(f"Of a hundred ports between {FIRST} and {LAST} none was free on {host}. What holds them all?")


def reserve(port: int, host: str = "127.0.0.1") -> socket.socket:
    """Reserve a port for a server of this user that is about to be started, until the socket is closed.

    No program of another user can take the port while the server is down, and no other stack can choose it. On Linux
    a socket that sets SO_REUSEPORT, as our server does, can listen beside one of the same user that only holds the
    port; elsewhere the port is only probed.

    Raises:
        PortInUseError: The port is taken.
    """
    held = socket.socket(_family(host), socket.SOCK_STREAM)
    try:
        # Servers set this option, too: old connections that linger in TIME_WAIT don't make a port taken.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, port))
    except OSError as error:
        held.close()
        raise PortInUseError(f"Port {port} on {host} is taken by another program.") from error
    if sys.platform != "linux":
        held.close()
        return held
    # Without the option, from here on the port is taken for all sockets that don't share it.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return held


def reserve_from(first: int, host: str = "127.0.0.1", avoid: Iterable[int] = ()) -> tuple[int, socket.socket]:
    """Reserve the first free port from a number on; return it and the socket that holds it (`reserve`).

    Raises:
        PortInUseError: No port is free.
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
