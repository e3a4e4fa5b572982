"""Running an HTTP server until it is asked to end."""

import asyncio
import os
import resource
import signal
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

import structlog
from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings
from granian.server.embed import Server

from caraway.apps.server.app import App
from caraway.apps.server.http.arrival import Proxies
from caraway.apps.server.http.connections import Connections
from caraway.apps.server.stalls import StallWatch, other_threads
from caraway.process.settings.server import ServerSettings

LOG = structlog.get_logger(__name__)

# Python's interval of switching threads. Requests share the interpreter with the thread that fills the index. With the
# default of 5 ms, a request may wait that long for this thread several times. At 200 events/s, the p99 of a log request
# fell from 196 to 12 ms.
SWITCH_INTERVAL_S = 0.0005
# After SIGTERM, requests under way may take this share of the time until the process ends itself. The other parts stop
# in the rest of the time.
DRAIN_SHARE = 0.5
# Requests that are still under way then are cancelled, and have this many seconds to be answered.
ANSWER_S = 1.0
# The process ends itself at the latest this many seconds after SIGTERM, even if a call hangs. A supervisor would kill
# it after 15 s. Unfinished work, such as actions of the ledger, is done again after the next start.
END_S = 12.0
# The number of each thread's innermost calls that are logged if the server ends itself because of a call that hangs.
CALLS_OF_THREAD = 6
# The most connections that the kernel holds until this process accepts them; the system may allow fewer
# (net.core.somaxconn).
BACKLOG = 1024
# The limit of open files that this process sets for itself if its hard limit is infinite.
MAX_FILES = 1_000_000
# The files that a process needs besides connections. RocksDB keeps up to 512 tables open, or all tables in a reader
# (`caraway.apps.server.workers`). The rest is for Kafka, Postgres and logs.
OWN_FILES = 1024
# A connection is closed if the head of its next request isn't complete after this time. So connections that are idle,
# or whose client sends headers byte by byte, are freed. Clients close idle connections sooner (httpx2 after 5 s,
# aiohttp after 15), so a client is seldom about to use a connection that the server closes.
IDLE_MS = 30_000
# The most bytes of the head of a request: its path, query string and headers. Queries with Arrow bodies name their
# outputs in the query string, which may be long.
MAX_HEAD_BYTES = 64 * 1024


def raise_file_limit() -> int:
    """Raise the limit of open files of this process to the most that the system allows; return that number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MAX_FILES if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError) as error:
        # macOS refuses limits above its kernel's own (kern.maxfilesperproc), even if the hard limit is infinite.
        LOG.warning("the limit of open files stays as it is", limit=soft, reason=str(error))
        return soft
    return wanted


@cache
def possible_connections(wanted: int) -> int:
    """Return how many connections may be open of those that are wanted, given the files that the system allows."""
    files = raise_file_limit()
    possible = max(files - OWN_FILES, files // 2)
    if possible < wanted:
        LOG.info("fewer connections are possible than server.connections asks for", files=files, connections=possible)
    return min(wanted, possible)


def bound_of(settings: ServerSettings, port: int, proxies: Proxies) -> Connections:
    """Return the bound on the connections of strangers, and on answers that nobody reads."""
    limit = possible_connections(settings.connections)
    return Connections(port, limit, believes=proxies.believes, tokens=settings.tokens)


def http_server(
    app: App,
    host: str,
    port: int,
    *,
    connections: int,
    socket: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
) -> Server:
    """Build a server for `app` on a port, or on a Unix socket. Several processes may share one port (Linux).

    Args:
        app: The application that answers.
        host: The address to listen on.
        port: The port.
        connections: The number of connections that may be open; fewer if the system allows too few open files. Further
            ones wait until others are closed.
        socket: A Unix socket to listen on instead.
        certificate: The certificate of the server, in PEM; None: it speaks no TLS.
        key: The key of the certificate.
    """
    return Server(
        app,
        address=host,
        port=port,
        uds=socket,
        interface=Interfaces.RSGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=BACKLOG,
        # granian accepts no more connections than this number, so it bounds connections and not requests.
        backpressure=possible_connections(connections),
        http1_settings=HTTP1Settings(header_read_timeout=IDLE_MS, max_buffer_size=MAX_HEAD_BYTES),
        log_enabled=False,
        ssl_cert=certificate,
        ssl_key=key,
        ssl_protocol_min=SSLProtocols.tls12,
    )


async def serve(
    server: Server, start: Callable[[], None], *, end_s: float = END_S, connections: Connections | None = None
) -> None:
    """Serve until SIGTERM or SIGINT, then let requests under way finish; `start` starts what is behind the server.

    Meanwhile `connections` bounds connections and answers, if it is given. The process ends itself `end_s` seconds
    after the signal, if anything hangs.

    Raises `OSError` if the address can't be listened on.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    start()
    watch = StallWatch()
    watch.start()
    if connections is not None:
        connections.start()
    serving = loop.create_task(server.serve())
    stopping = loop.create_task(stop.wait())
    # The first step of the HTTP server creates the server's own tasks. All tasks that follow belong to requests.
    await asyncio.sleep(0)
    lasting = asyncio.all_tasks()
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        stopping.cancel()
        # The HTTP server ends without `stop` only after a failure, which `result` raises here.
        serving.result()
        raise RuntimeError("the HTTP server ended by itself")
    watch.stop()
    if connections is not None:
        connections.stop(0)
    LOG.info("stopping")
    _end_in_any_case(end_s)
    server.stop()  # type: ignore[no-untyped-call]
    drain_s = end_s * DRAIN_SHARE
    _, late = await asyncio.wait({serving}, timeout=drain_s)
    if late:
        LOG.warning("requests were still under way", after_seconds=drain_s)
        # The application answers a request that is cancelled. The HTTP server's own tasks must not be cancelled,
        # because the server then can't send these answers, and sets the result of a future that was cancelled.
        for task in asyncio.all_tasks() - lasting:
            task.cancel()
        await asyncio.wait({serving}, timeout=ANSWER_S)


def _end_in_any_case(seconds: float) -> None:
    def end() -> None:
        LOG.error("something hangs, ending without it", after_seconds=seconds, threads=other_threads(CALLS_OF_THREAD))
        os._exit(1)

    deadline = threading.Timer(seconds, end)
    deadline.daemon = True
    deadline.start()
