"""TLS before a Postgres: the embedded one is built without it, and a front has it, as that of a pooler or a cloud."""

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# A client's first message if it wants TLS: its length, and the number of the request.
REQUEST = bytes.fromhex("0000000804d2162f")
STEP = 16 * 1024


@contextmanager
def tls_before(port: int, keystore: Path) -> Iterator[int]:
    """Serve TLS alone before a Postgres on this machine until the block ends; yield the port.

    Args:
        port: The port of Postgres.
        keystore: A key with its certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keystore)

    def serve(client: socket.socket) -> None:
        with suppress(OSError), client:
            if client.recv(len(REQUEST), socket.MSG_WAITALL) != REQUEST:
                return
            client.sendall(b"S")
            with (
                context.wrap_socket(client, server_side=True) as secured,
                socket.create_connection(("127.0.0.1", port)) as server,
            ):
                _forward(secured, server)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def _forward(client: ssl.SSLSocket, server: socket.socket) -> None:
    """Pass on what both sides send, in one thread since OpenSSL doesn't allow several, until one of them ends."""
    while True:
        ready = [client] if client.pending() else select.select([client, server], [], [])[0]
        for source in ready:
            data = source.recv(STEP)
            if not data:
                return
            (server if source is client else client).sendall(data)
