"""Choose TCP ports: free ones, below the range from which systems hand out ports for outgoing connections."""

import random
import socket
import sys
from collections.abc import Iterable

from caraway.stack.errors import PortInUseError

# Linux hands out 32768-60999, macOS 49152-65535; a port from there could be taken while we are down.
FIRST, LAST = 20_000, 32_000
# How many ports after the wanted one are tried: more stacks than that don't fit on one machine.
NEXT_PORTS = 200


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether we could listen on a port now."""
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        # As servers do: connections of a predecessor that linger in TIME_WAIT don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def choose(host: str = "127.0.0.1", avoid: Iterable[int] = ()) -> int:
    """Return a free port.

    Raises:
        PortInUseError: After a hundred attempts there was none.
    """
    taken = set(avoid)
    for _ in range(100):
        # Two stacks that start at the same moment should not try the same ports in the same order.
        port = random.randrange(FIRST, LAST)  # noqa: S311 (no secret)
        if port not in taken and is_free(port, host):
            return port
    raise PortInUseError(f"Of a hundred ports between {FIRST} and {LAST} none was free on {host}. What holds them all?")


def reserve(port: int, host: str = "127.0.0.1") -> socket.socket:
    """Reserve a port for a server of this user that is about to be started, until the socket is closed.

    No program of another user can take the port while the server is away, and no other stack can choose it. On Linux
    a socket that sets SO_REUSEPORT, as our server does, can listen beside one of the same user that only holds the
    port; elsewhere the port is only probed.

    Raises:
        PortInUseError: The port is taken.
    """
    held = socket.socket(_family(host), socket.SOCK_STREAM)
    try:
        # As servers do: connections of a predecessor that linger in TIME_WAIT don't count.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, port))
    except OSError as error:
        held.close()
        raise PortInUseError(f"Port {port} on {host} is taken by another program.") from error
    if sys.platform != "linux":
        held.close()
        return held
    # From here on the port counts as taken to everybody who doesn't share it.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return held


def reserve_from(first: int, host: str = "127.0.0.1", avoid: Iterable[int] = ()) -> tuple[int, socket.socket]:
    """Reserve the first free port from a number on; return it and what holds it (`reserve`).

    Raises:
        PortInUseError: None is free.
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
