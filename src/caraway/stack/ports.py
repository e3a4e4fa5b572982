"""Choose TCP ports: free ones, below the range from which systems hand out ports for outgoing connections."""

import random
import socket
from collections.abc import Iterable

from caraway.stack.errors import PortInUseError

# Linux hands out 32768-60999, macOS 49152-65535; a port from there could be taken while we are down.
FIRST, LAST = 20_000, 32_000


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether we could listen on a port now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: connections of a predecessor that linger in TIME_WAIT don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def choose(host: str = "127.0.0.1", avoid: Iterable[int] = ()) -> int:
    """Give a free port.

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
