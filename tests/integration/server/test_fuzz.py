"""Tests of a server under malformed requests: it never answers 5xx, stays alive and small, and answers other callers.

`just fuzz` sends 10,000 with a fresh seed, which it prints; `CARAWAY_FUZZ_SEED` repeats one.
"""

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import psutil
import pytest

from caraway.apps.stack import ports
from caraway.process.settings.connectors import SourcesSettings
from tests.fuzz.again import MCP
from tests.fuzz.messages import Caller, messages, untouched
from tests.fuzz.run import Findings, fuzz
from tests.fuzz.trials import ROWS, TRIED, definitions
from tests.fuzz.valid import BRANCH, PROTOBUF, agents, pages, requests
from tests.integration.server.guarded import guarded_server
from tests.integration.server.server_process import ServerProcess, eventually
from tests.integration.server.test_api import pot
from tests.integration.spark.broker import running_broker
from tests.unit.compute.query import garden

# Requests of the short form. It runs in the tier of integration, beside other tests that take the processors, so it
# checks no waits. The number is read on import, because the tests remove settings from outside.
SHORT = 500
NUMBER = int(os.environ.get("CARAWAY_FUZZ_REQUESTS", SHORT))
SEED = int(os.environ.get("CARAWAY_FUZZ_SEED", "1" if NUMBER == SHORT else str(secrets.randbits(32))))
# Bound on the time of one test, enough for a slow machine: 10,000 requests take some minutes.
SECONDS = 300 + NUMBER // 5
INTAKE = "caraway.dataplane.ingest.intake_main"


@pytest.fixture
def fuzzed(postgres: str, tmp_path: Path) -> Iterator[tuple[ServerProcess, str, str, str]]:
    """Yield a server of the test's own with a token and a session of the fuzzer, and the token of another caller."""
    # The memory of a server that was forked can't be told from that of its fork server and of offline queries.
    graph = garden.graph()
    # Servers with equal definitions share the topics of one Kafka, and no other test may read rows of the fuzzer.
    with (
        running_broker(tmp_path / "kafka") as broker,
        guarded_server(
            tmp_path / "server",
            kafka=broker.bootstrap_servers,
            postgres=postgres,
            graph=graph,
            cold=True,
            sources=SourcesSettings(local_folders=(str(ROWS),)),
        ) as guarded,
    ):
        process = guarded.server
        process.http.post("/init", json={}, headers={"X-Caraway-Branch": BRANCH}).raise_for_status()
        assert process.log("pots", [pot(1, "oak")]).status_code == 200
        # The process for large log requests starts with the first of them, and stays.
        assert process.log("pots", [pot(number, "oak") for number in range(2_000)]).status_code == 200
        eventually(lambda: any(INTAKE in one.cmdline() for one in psutil.Process(process.pid).children()), process.said)
        for said, definition in definitions().items():
            # The first trial starts the process from which all are forked, for which a busy machine takes long.
            eventually(lambda: said in tried(process, definition), process.said)  # noqa: B023 (called here)
        token = guarded.administrator("fuzzer@example.com")
        yield process, token, guarded.session(token), guarded.admin


@pytest.mark.timeout(SECONDS)
def test_malformed_requests_harm_nobody(fuzzed: tuple[ServerProcess, str, str, str]) -> None:
    process, token, session, other = fuzzed
    server = process.settings.server
    port = server.port
    assert port is not None
    caller = Caller(f"{server.host}:{port}", token)
    print(f"\nseed {SEED}")  # noqa: T201 (repeats the run)
    valid = (*requests(), *pages(session))
    # The first request of each kind imports modules and fills caches, which must not count as growth of the memory.
    fuzz(server.host, port, process.pid, [untouched(Random(SEED), one, caller) for one in valid], other)
    found = fuzz(server.host, port, process.pid, messages(SEED, NUMBER, valid, caller), other)
    print(found.summary())  # noqa: T201 (what the run is for)
    assert found.trials(), "no damaged definition was tried"
    assert process.answers(), process.said()
    assert process.health().status_code == 200
    assert found.start_mb > 50, "the memory of the server wasn't measured"
    check(found, f"{caller.host} {token} {session}")
    assert "Traceback" not in process.log_file.read_text(errors="replace"), process.said()
    assert process.stalls() == []


@pytest.mark.timeout(SECONDS)
def test_malformed_requests_of_agents_harm_nobody(fuzzed: tuple[ServerProcess, str, str, str], tmp_path: Path) -> None:
    process, token, _, other = fuzzed
    server, port, log = process.settings.server, ports.choose(), tmp_path / "mcp.log"
    assert server.port is not None
    caller = Caller(f"{server.host}:{port}", token)
    url = f"http://{server.host}:{server.port}"
    command = [sys.executable, "-m", "caraway.apps.cli", "mcp", "--http", "--port", str(port), "--url", url]
    with log.open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as mcp:
        try:
            eventually(lambda: listens(server.host, port) or mcp.poll() is not None, log.read_text)
            first = [untouched(Random(SEED), one, caller) for one in agents()]
            asked = (server.host, server.port, process.pid)
            answers = fuzz(server.host, port, mcp.pid, first, other, asked)
            assert all(reply.statuses == (200,) for reply in answers.replies), answers.replies
            made = messages(SEED, max(100, NUMBER // 20), agents(), caller)
            found = fuzz(server.host, port, mcp.pid, made, other, asked)
            print(found.summary())  # noqa: T201 (what the run is for)
            assert mcp.poll() is None, log.read_text()
        finally:
            mcp.kill()
    check(found, f"{caller.host} {token} {MCP}")


def tried(process: ServerProcess, definition: bytes) -> str:
    headers = {"Content-Type": PROTOBUF}
    return process.http.post(f"/source/try?name={TRIED}&rows=3", content=definition, headers=headers).text


def check(found: Findings, target: str) -> None:
    """Fail with the faults of a run, and with the command that sends a message of it again to a server."""
    faults = found.faults(waits=NUMBER > SHORT)
    again = f"python -m tests.fuzz.again {SEED} NUMBER {target}"
    assert not faults, f"{len(faults)} faults; one message again: {again}\n" + "\n".join(faults[:20])


def listens(host: str, port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex((host, port)) == 0
