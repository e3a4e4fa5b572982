"""Health checks. Each returns None if the part works, and otherwise the reason why it doesn't, for people."""

import json
import os
import socket
import ssl
import struct
import time
from pathlib import Path

import httpx2
import psycopg

from caraway.process.authorities import authorities
from caraway.process.postgres_refusals import remedy_of

# Seconds within which a part must answer a health check. An answer takes milliseconds unless the machine is overloaded.
TIMEOUT_SECONDS = 3.0

# The engine writes its heartbeat once a second. If the heartbeat is older than this many seconds, the engine hangs or
# has ended.
STALE_SECONDS = 15.0

# The number of the request ApiVersions in Kafka's protocol.
API_VERSIONS = 18


def check_postgres(url: str) -> str | None:
    """Check that a Postgres server answers a query."""
    try:
        with psycopg.connect(url, connect_timeout=int(TIMEOUT_SECONDS), autocommit=True) as connection:
            connection.execute("SELECT 1")
    except psycopg.Error as error:
        text = str(error).strip().splitlines()[0]
        return text + remedy_of(text)
    return None


def check_kafka(bootstrap_servers: str) -> str | None:
    """Check that a broker answers a request for its protocol versions, as it does once it has joined its cluster."""
    reasons = []
    for server in bootstrap_servers.split(","):
        host, _, port = server.rpartition(":")
        try:
            _api_versions(host, int(port))
        except (OSError, struct.error, ValueError) as error:
            reasons.append(f"{server}: {error}")
        else:
            return None
    return "; ".join(reasons)


def check_http(url: str, token_file: Path | None, certificate: Path | None = None) -> str | None:
    """Check that a Caraway server reports that it is healthy; it tells the reasons only to who has a token.

    Args:
        url: The server.
        token_file: The file with a token.
        certificate: The server's own certificate, by which it is recognized.
    """
    try:
        verify = authorities(trust_env=False) if certificate is None else _trust_in(certificate)
        token = None if token_file is None else token_file.read_text().strip()
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        answer = httpx2.get(
            f"{url}/api/v1/health", headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False, verify=verify
        )
    except OSError as error:
        return f"the token of the stack, or the server's certificate, can't be read: {error}"
    except httpx2.HTTPError as error:
        return str(error) or type(error).__name__
    return None if answer.is_success else f"HTTP {answer.status_code}: {answer.text[:200]}"


def _trust_in(certificate: Path) -> ssl.SSLContext:
    """Return a context that trusts one certificate alone, under whatever name its server is asked."""
    context = ssl.create_default_context(cafile=certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context


def check_engine(heartbeat: Path, pid: int) -> str | None:
    """Read the engine's heartbeat file, and check that it is fresh and of process `pid`."""
    try:
        beat = json.loads(heartbeat.read_text())
        age = time.time() - beat["heartbeat_at_us"] / 1e6
        if beat["pid"] != pid:
            return "it has not written its heartbeat yet"
        if not beat["ready"]:
            return "Spark is starting"
    except FileNotFoundError:
        return "it has not written its heartbeat yet"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"its heartbeat can't be read: {error}"
    return None if age < STALE_SECONDS else f"its last heartbeat was {age:.0f} s ago"


def _api_versions(host: str, port: int) -> None:
    correlation = os.getpid() & 0x7FFFFFFF
    client = b"caraway-health"
    request = struct.pack(f">hhih{len(client)}s", API_VERSIONS, 0, correlation, len(client), client)
    with socket.create_connection((host, port), TIMEOUT_SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.recv(10)
    _, answered, error = struct.unpack(">iih", answer)
    if answered != correlation or error != 0:
        raise ValueError(f"it answered with error {error}")
