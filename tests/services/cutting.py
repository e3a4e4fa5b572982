"""A proxy before a server, which cuts connections in the middle of answers."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

STEP = 16 * 1024


@dataclass
class CuttingProxy:
    """The state of a proxy.

    Attributes:
        address: The URL of the proxy.
        after: Returns how many bytes of answers the next connection lets through; None: all.
        cuts: How many connections were cut.
    """

    address: str = ""
    after: Callable[[], int | None] = lambda: None
    cuts: int = 0


@contextmanager
def cutting_proxy(target: str) -> Iterator[CuttingProxy]:
    """Run a proxy before the server at the URL `target`, until the block ends."""
    parts = urlsplit(target)
    assert parts.hostname is not None
    assert parts.port is not None
    place = (parts.hostname, parts.port)
    proxy = CuttingProxy()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy.address = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    server = socket.create_connection(place)
                    threading.Thread(target=_forward, args=(client, server), daemon=True).start()
                    threading.Thread(target=answer, args=(server, client), daemon=True).start()

        def answer(server: socket.socket, client: socket.socket) -> None:
            left = proxy.after()
            with suppress(OSError):
                while data := server.recv(STEP):
                    client.sendall(data if left is None else data[:left])
                    if left is not None:
                        left -= len(data)
                        if left <= 0:
                            proxy.cuts += 1
                            break
            _close(client, server)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield proxy
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def _forward(client: socket.socket, server: socket.socket) -> None:
    with suppress(OSError):
        while data := client.recv(STEP):
            server.sendall(data)
    _close(client, server)


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
