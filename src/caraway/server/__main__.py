"""`python -m caraway.server`: serve ingest, query and control over HTTP, with the settings of the environment."""

import os
import socket
import sys

import structlog
import uvloop

from caraway.config import ConfigurationError, Settings, load_settings
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
from caraway.server.serving import SWITCH_INTERVAL_S, http_server, serve
from caraway.server.workers import supervisor

LOG = structlog.get_logger(__name__)

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


def run(settings: Settings) -> None:
    """Serve in this process until it is asked to end."""
    deployment = Deployment(settings)
    server = settings.server
    port = server.port or _free_port(server.host)
    http = http_server(App(Router(routes(deployment)), deployment.gate), server.host, port)
    _tell(settings, port)
    try:
        uvloop.run(serve(http, deployment.start))
    finally:
        deployment.stop()
        LOG.info("stopped")


def run_workers(settings: Settings) -> None:
    """Become the parent of several processes that serve together; doesn't return.

    Raises:
        ConfigurationError: They can't.
        OSError: The address can't be listened on.
    """
    server = settings.server
    if settings.index.shards is not None:
        raise ConfigurationError(
            "server.workers: an index that is divided (index.shards) is read by one process of each server; "
            "run more servers instead, or leave index.shards out"
        )
    # Before anything is started: whoever has the port already may be another server.
    port = _free_port(server.host, server.port or 0)
    _tell(settings, port)
    arguments = ["--host", server.host, "--port", str(port), "--readers", str(server.workers)]
    os.execv(sys.executable, [sys.executable, supervisor.__file__, *arguments])  # noqa: S606 (no shell is the point)


def _tell(settings: Settings, port: int) -> None:
    server = settings.server
    LOG.info("listening", host=server.host, port=port)
    if not server.tokens and server.host not in LOOPBACK:
        LOG.warning("whoever reaches this server may do everything; server.tokens=true lets it ask for tokens")


def _free_port(host: str, port: int = 0) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        found: int = probe.getsockname()[1]
        return found


def main() -> int:
    """Run the server; return the exit code."""
    try:
        settings = load_settings()
        configure_logging(settings.log_level)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        if settings.server.workers > 1:
            run_workers(settings)
        run(settings)
    except CarawayError as error:
        sys.stderr.write(f"server: {error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"server: can't listen on {settings.server.host}:{settings.server.port}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
