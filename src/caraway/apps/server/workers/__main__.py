"""`python -m caraway.apps.server.workers`: one of the processes of a server, which `supervisor` starts."""

import argparse
import logging
import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path

import structlog
import uvloop

from caraway.apps.server.access.sites import Sites
from caraway.apps.server.app import App, RequestBounds
from caraway.apps.server.http.arrival import Proxies
from caraway.apps.server.http.endpoints import Router
from caraway.apps.server.serving import SWITCH_INTERVAL_S, bound_of, http_server, serve
from caraway.apps.server.surface import endpoints
from caraway.apps.server.wiring import deploy
from caraway.apps.server.workers.forwarding import Forwarder
from caraway.apps.server.workers.reader import ReaderParts, ReaderRouter, changes_of
from caraway.process.allocator import return_large_buffers
from caraway.process.collector import collect_rarely
from caraway.process.program import run_program
from caraway.process.settings.settings import Settings

LOG = structlog.get_logger(__name__)

SOCKET = "writer.sock"
# A reader or writer process ends itself at most this many seconds after SIGTERM, even if a call hangs. The supervisor
# would kill a reader 7 s and the writer 6 s after SIGTERM.
END_S = 5.5


def write(settings: Settings, folder: Path) -> None:
    """Run the writer until it is asked to end."""
    deployment = deploy(settings, shared=folder)
    socket = folder / SOCKET
    # A writer that was killed has left its socket behind, and a socket can only be bound to a path that is free.
    socket.unlink(missing_ok=True)
    # `sites` is None: only readers send requests to this socket, and a reader has already refused requests from pages
    # of other sites. All readers are trusted to report how a request came.
    app = App(
        Router(endpoints(deployment)),
        deployment.accounts.gate,
        RequestBounds.of(settings.server),
        sites=None,
        tracer=deployment.tracer,
        proxies=Proxies(everybody=True),
    )
    server = http_server(app, "writer", 0, connections=settings.server.connections, socket=socket)
    try:
        uvloop.run(serve(server, deployment.parts.start, end_s=END_S))
    finally:
        deployment.parts.stop()


def read(settings: Settings, folder: Path, number: int, host: str, port: int) -> None:
    """Run a reader until it is asked to end."""
    # httpx2 would log a line for each request that is passed on.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    reading = ReaderParts(settings, folder, number)
    forwarder = Forwarder(folder / SOCKET, changes_of(folder))
    bounds = RequestBounds.of(settings.server)
    proxies = Proxies(settings.server.trusted_proxies)
    connections = bound_of(settings.server, port, proxies)
    app = App(
        ReaderRouter(reading, forwarder),
        reading.gate,
        bounds,
        sites=Sites(settings.server),
        tracer=reading.tracer,
        proxies=proxies,
        connections=connections,
    )
    server = http_server(
        app,
        host,
        port,
        connections=settings.server.connections,
        certificate=settings.server.certificate_file,
        key=settings.server.key_file,
    )
    try:
        uvloop.run(serve(server, reading.start, end_s=END_S, connections=connections))
    finally:
        reading.stop()


def end_with_parent() -> None:
    """End this process when its parent is gone, which holds the other end of standard input."""

    def wait() -> None:
        # A read through `sys.stdin` would hold the lock of `sys.stdin` while this thread waits. Python needs that lock
        # when it ends, and would abort with a fatal error.
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def main() -> int:
    """Run the writer or a reader, as the arguments say; return the exit code."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--reader", type=int)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    chosen = parser.parse_args()
    name = "writer" if chosen.reader is None else f"reader {chosen.reader}"
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    collect_rarely()
    return_large_buffers()
    end_with_parent()
    return run_program(f"server ({name})", partial(_run, chosen, name))


def _run(chosen: argparse.Namespace, name: str, settings: Settings) -> int:
    structlog.contextvars.bind_contextvars(process=name)
    try:
        if chosen.reader is None:
            write(settings, chosen.folder)
        else:
            read(settings, chosen.folder, chosen.reader, chosen.host, chosen.port)
    except OSError as error:
        sys.stderr.write(f"server ({name}): {error}\n")
        return 1
    LOG.info("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
