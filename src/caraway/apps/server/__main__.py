"""`python -m caraway.apps.server`: serve ingest, query and control over HTTP, with the settings of the environment."""

import errno
import os
import socket
import sys

import structlog
import uvloop

from caraway.apps.server.access.sites import Sites
from caraway.apps.server.app import App, RequestBounds
from caraway.apps.server.http.arrival import Proxies
from caraway.apps.server.http.endpoints import Router
from caraway.apps.server.serving import SWITCH_INTERVAL_S, bound_of, http_server, serve
from caraway.apps.server.surface import endpoints
from caraway.apps.server.wiring import deploy
from caraway.apps.server.workers import supervisor
from caraway.dataplane.topics.admin import check_access
from caraway.dataplane.topics.credentials import sign_in
from caraway.process.allocator import return_large_buffers
from caraway.process.collector import collect_rarely
from caraway.process.program import run_program
from caraway.process.settings.certificates import certificate_of, is_loopback, warning_of
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.server import ServerSettings
from caraway.process.settings.settings import Settings

LOG = structlog.get_logger(__name__)

# The timeout, in seconds, of the connection by which a starting server finds out whether another server already listens
# on the configured port. A server on this machine accepts within milliseconds.
PROBE_S = 1.0


def run(settings: Settings) -> None:
    """Serve in this process until it is asked to end."""
    collect_rarely()
    return_large_buffers()
    deployment = deploy(settings)
    server = settings.server
    port = port_of(server)
    proxies = Proxies(server.trusted_proxies)
    connections = bound_of(server, port, proxies)
    app = App(
        Router(endpoints(deployment)),
        deployment.accounts.gate,
        RequestBounds.of(server),
        sites=Sites(server),
        tracer=deployment.tracer,
        proxies=proxies,
        connections=connections,
    )
    http = http_server(
        app,
        server.host,
        port,
        connections=server.connections,
        certificate=server.certificate_file,
        key=server.key_file,
    )
    _log_start(settings, port)
    try:
        uvloop.run(serve(http, deployment.parts.start, connections=connections))
    finally:
        deployment.parts.stop()
        LOG.info("stopped")


def run_workers(settings: Settings) -> None:
    """Become the parent of several processes that serve together; doesn't return.

    Raises:
        ConfigurationError: Several processes can't serve here.
        OSError: The address can't be listened on.
    """
    server = settings.server
    if settings.index.shards is not None:
        raise ConfigurationError(
            "server.workers: an index that is divided (index.shards) is read by one process of each server; "
            "run more servers instead, or leave index.shards out"
        )
    port = port_of(server)
    _log_start(settings, port)
    arguments = ["--host", server.host, "--port", str(port), "--readers", str(server.workers)]
    os.execv(sys.executable, [sys.executable, "-m", supervisor.__name__, *arguments])  # noqa: S606 (no shell is the point)


def _log_start(settings: Settings, port: int) -> None:
    server = settings.server
    LOG.info("listening", host=server.host, port=port)
    if not server.tokens:
        LOG.warning("everybody who reaches this server may do everything; server.tokens=true lets it ask for tokens")
    if warning := warning_of(server):
        LOG.warning(warning)


def require_protection(server: ServerSettings) -> None:
    """Check that a server without tokens is reached from this machine only.

    Raises `ConfigurationError` if the server would be open to the network, and no setting allows that.
    """
    if server.tokens or server.allow_network_without_tokens or is_loopback(server.host):
        return
    raise ConfigurationError(
        f"server.tokens: everybody who reaches {server.host} could run code on this server without a token. Leave "
        "server.tokens out and make a token with `caraway tokens create NAME --role admin`; or listen on 127.0.0.1 "
        "(server.host); or, if something in front of the server lets in nobody else, set "
        "server.allow_network_without_tokens=true"
    )


def port_of(server: ServerSettings) -> int:
    """Return the port to listen on: the one of the settings, or a free one if they leave it open.

    On Linux two servers of one user can share a port, and each request would reach one of them at random. A supervisor
    that only holds the port for this server is no obstacle (`caraway.apps.stack.ports.reserve`).

    Raises:
        OSError: The address can't be listened on, or another server does.
    """
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if server.port and sys.platform == "linux":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        probe.bind((server.host, server.port or 0))
        port: int = probe.getsockname()[1]
    if server.port:
        with socket.socket(family) as probe:
            probe.settimeout(PROBE_S)
            if probe.connect_ex((server.host, port)) == 0:
                raise OSError(errno.EADDRINUSE, "another server listens there")
    return port


def main() -> int:
    """Run the server; return the exit code."""
    return run_program("server", _run)


def _run(settings: Settings) -> int:
    server = settings.server
    try:
        require_protection(server)
        certificate_of(server)
        check_access(sign_in(settings.kafka))
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        if server.workers > 1:
            run_workers(settings)
        run(settings)
    except OSError as error:
        sys.stderr.write(f"server: can't listen on {server.host}:{server.port}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
