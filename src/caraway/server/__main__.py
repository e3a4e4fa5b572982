"""`python -m caraway.server`: serve ingest, query and control over HTTP, with the settings of the environment."""

import os
import socket
import sys

import structlog
import uvloop

from caraway.config import ConfigurationError, Settings, load_settings
from caraway.errors import CarawayError
from caraway.server.app import App
from caraway.server.deployment import Deployment
from caraway.server.http.routes import Router
from caraway.server.logs import configure_logging
from caraway.server.serving import SWITCH_INTERVAL_S, http_server, serve
from caraway.server.surface import routes
from caraway.server.workers import supervisor

LOG = structlog.get_logger(__name__)

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


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
