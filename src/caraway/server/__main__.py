"""`python -m caraway.server`: serve ingest, query and control over HTTP, with the settings of the environment."""

import asyncio
import os
import signal
import socket
import sys
import threading

import structlog
import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server

from caraway.config import ServerSettings, load_settings
from caraway.errors import CarawayError
from caraway.server.access_limits import Limits
from caraway.server.admin import Admin
from caraway.server.api import Api
from caraway.server.app import App
from caraway.server.branches import BranchRoutes
from caraway.server.deployment import Deployment
from caraway.server.erase import EraseRoutes
from caraway.server.explanations import Explanations
from caraway.server.feast import FeastDoor
from caraway.server.logs import configure_logging
from caraway.server.openapi import docs, openapi
from caraway.server.queries import Queries
from caraway.server.reads import Reads
from caraway.server.routes import API, Route, Router
from caraway.server.secrets import SecretRoutes

LOG = structlog.get_logger(__name__)

# Requests under way get this long; with what comes after, it stays below the 15 s of a supervisor.
DRAIN_S = 6.0
# A call that hangs must not keep the process: what is durable stays so, the rest is done again after the next start.
END_S = 12.0
BACKLOG = 1024
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def routes(deployment: Deployment) -> tuple[Route, ...]:
    """Return all routes."""
    queries = Queries()
    limits = Limits(deployment)
    branches = BranchRoutes(deployment, limits)
    api, admin = Api(deployment, limits), Admin(deployment)
    secrets = SecretRoutes(deployment.secrets)
    erase = EraseRoutes(
        deployment,
        limits,
        deployment.eraser,
        log=deployment.erasures,
        keyring=deployment.keyring,
        needed=lambda: deployment.needed,
    )
    reads, feast = Reads(limits, queries, deployment.served.keep), FeastDoor(limits, queries)
    return (
        Route("POST", f"{API}/query", reads.query, "extract_features"),
        Route("POST", f"{API}/query/explain", Explanations(limits, queries).explain, "explain_query"),
        Route("POST", "/get-online-features", feast.get_online_features, "extract_features"),
        Route("POST", f"{API}/log", api.log, "log"),
        Route("POST", f"{API}/commit", api.commit, "sync"),
        Route("POST", f"{API}/dataset/{{name}}/lookup", reads.lookup, "lookup"),
        Route("POST", f"{API}/dataset/{{name}}/erase", erase.erase, "erase"),
        Route("GET", f"{API}/dataset/{{name}}/erasures", erase.erasures, "erasures"),
        Route("GET", f"{API}/secret/{{name}}", secrets.get, "get_secret"),
        Route("POST", f"{API}/secret/{{name}}", secrets.add, "add_secret"),
        Route("PATCH", f"{API}/secret/{{name}}", secrets.update, "update_secret"),
        Route("DELETE", f"{API}/secret/{{name}}", secrets.delete, "delete_secret"),
        Route("GET", f"{API}/secrets", secrets.list, "list_secrets"),
        Route("POST", f"{API}/init", branches.init, "init_branch"),
        Route("POST", f"{API}/delete", branches.delete, "delete_branch"),
        Route("GET", f"{API}/branch/list", branches.list, "list_branches"),
        Route("GET", f"{API}/branch/log", branches.history, "branch_log"),
        Route("GET", f"{API}/branch/diff", branches.diff, "branch_diff"),
        Route("POST", f"{API}/branch/rollback", branches.roll_back, "roll_back"),
        Route("GET", f"{API}/ledger", branches.ledger, "ledger"),
        Route("GET", f"{API}/health", admin.health, "health"),
        Route("GET", f"{API}/status", admin.status, "status"),
        Route("GET", f"{API}/metrics", admin.metrics, "metrics"),
        Route("GET", f"{API}/openapi.json", openapi, "openapi"),
        Route("GET", f"{API}/docs", docs, "docs"),
        Route("GET", "/metrics", admin.metrics, "metrics"),
        Route("GET", "/", admin.root, "root"),
    )


# Requests share the interpreter with the thread that indexes. With Python's 5 ms a request waits that long for it,
# several times over: at 200 events/s the p99 of a log request fell from 196 to 12 ms.
SWITCH_INTERVAL_S = 0.0005


async def serve(settings: ServerSettings, deployment: Deployment) -> None:
    """Serve until SIGTERM or SIGINT, then let requests under way finish."""
    port = settings.port or _free_port(settings.host)
    server = Server(
        App(Router(routes(deployment)), deployment.gate),
        address=settings.host,
        port=port,
        interface=Interfaces.RSGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=BACKLOG,
        log_enabled=False,
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    deployment.start()
    serving = loop.create_task(server.serve())
    stopping = loop.create_task(stop.wait())
    LOG.info("listening", host=settings.host, port=port)
    if not settings.tokens and settings.host not in LOOPBACK:
        LOG.warning("whoever reaches this server may do everything; server.tokens=true lets it ask for tokens")
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        stopping.cancel()
        # It ends by itself only when something is wrong.
        serving.result()
        raise RuntimeError("the HTTP server ended by itself")
    LOG.info("stopping")
    _end_in_any_case()
    server.stop()  # type: ignore[no-untyped-call]
    _, late = await asyncio.wait({serving}, timeout=DRAIN_S)
    if late:
        LOG.warning("requests were still under way", after_seconds=DRAIN_S)


def _end_in_any_case() -> None:
    def end() -> None:
        LOG.error("something hangs, ending without it", after_seconds=END_S)
        os._exit(1)

    deadline = threading.Timer(END_S, end)
    deadline.daemon = True
    deadline.start()


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> int:
    """Run the server; return the exit code."""
    try:
        settings = load_settings()
        configure_logging(settings.log_level)
        deployment = Deployment(settings)
    except CarawayError as error:
        sys.stderr.write(f"server: {error}\n")
        return 1
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        uvloop.run(serve(settings.server, deployment))
    except OSError as error:
        sys.stderr.write(f"server: can't listen on {settings.server.host}:{settings.server.port}: {error}\n")
        return 1
    finally:
        deployment.stop()
        LOG.info("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
