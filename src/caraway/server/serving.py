"""Running an HTTP server until it is asked to end."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import structlog
from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server

from caraway.server.app import App

LOG = structlog.get_logger(__name__)

# Requests share the interpreter with the thread that indexes. With Python's 5 ms a request waits that long for it,
# several times over: at 200 events/s the p99 of a log request fell from 196 to 12 ms.
SWITCH_INTERVAL_S = 0.0005
# Requests under way get this long; with what comes after, it stays below the 15 s of a supervisor.
DRAIN_S = 6.0
# A call that hangs must not keep the process: what is durable stays so, the rest is done again after the next start.
END_S = 12.0
BACKLOG = 1024


def http_server(app: App, host: str, port: int, *, socket: Path | None = None) -> Server:
    """Make what answers through `app` on a port, or on a Unix socket. Several processes may have one port (Linux)."""
    return Server(
        app,
        address=host,
        port=port,
        uds=socket,
        interface=Interfaces.RSGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=BACKLOG,
        log_enabled=False,
    )


async def serve(server: Server, start: Callable[[], None], *, end_s: float = END_S) -> None:
    """Serve until SIGTERM or SIGINT, then let requests under way finish; `start` starts what is behind the server.

    Raises:
        OSError: The address can't be listened on.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    start()
    serving = loop.create_task(server.serve())
    stopping = loop.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        stopping.cancel()
        # It ends by itself only when something is wrong.
        serving.result()
        raise RuntimeError("the HTTP server ended by itself")
    LOG.info("stopping")
    _end_in_any_case(end_s)
    server.stop()  # type: ignore[no-untyped-call]
    _, late = await asyncio.wait({serving}, timeout=DRAIN_S)
    if late:
        LOG.warning("requests were still under way", after_seconds=DRAIN_S)


def _end_in_any_case(seconds: float) -> None:
    def end() -> None:
        LOG.error("something hangs, ending without it", after_seconds=seconds)
        os._exit(1)

    deadline = threading.Timer(seconds, end)
    deadline.daemon = True
    deadline.start()
