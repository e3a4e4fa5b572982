"""Tests of a server under malformed requests: it never answers 5xx, stays alive and small, and answers other callers.

`just fuzz` sends 10,000 with a fresh seed, which it prints; `CARAWAY_FUZZ_SEED` repeats one.
"""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from random import Random

import psutil
import pytest

from caraway.server.surface import DOCUMENT
from tests.fuzz.messages import Caller, messages, untouched
from tests.fuzz.run import fuzz
from tests.fuzz.valid import BRANCH, pages, requests
from tests.integration.server.guarded import guarded_server
from tests.integration.server.server_process import ServerProcess, eventually
from tests.integration.server.test_api import pot
from tests.unit.query import garden

# Requests of the short form. It runs in the tier of integration, beside other tests that take the processors, so it
# checks no waits. The number is read on import, because the tests remove settings from outside.
SHORT = 500
NUMBER = int(os.environ.get("CARAWAY_FUZZ_REQUESTS", SHORT))
SEED = int(os.environ.get("CARAWAY_FUZZ_SEED", "1" if NUMBER == SHORT else str(secrets.randbits(32))))
# Bound on the time of one test, enough for a slow machine: 10,000 requests take some minutes.
SECONDS = 300 + NUMBER // 5
INTAKE = "caraway.ingest.intake_main"


@pytest.fixture
def fuzzed(kafka: str, postgres: str, tmp_path: Path) -> Iterator[tuple[ServerProcess, str, str, str]]:
    """Yield a server of the test's own with a token and a session of the fuzzer, and the token of another caller."""
    # The memory of a server that was forked can't be told from that of its fork server and of offline queries.
    graph = garden.graph()
    with guarded_server(tmp_path / "server", kafka=kafka, postgres=postgres, graph=graph, cold=True) as guarded:
        process = guarded.server
        process.http.post("/init", json={}, headers={"X-Caraway-Branch": BRANCH}).raise_for_status()
        assert process.log("pots", [pot(1, "oak")]).status_code == 200
        # The process for large log requests starts with the first of them, and stays.
        assert process.log("pots", [pot(number, "oak") for number in range(2_000)]).status_code == 200
        eventually(lambda: any(INTAKE in one.cmdline() for one in psutil.Process(process.pid).children()), process.said)
        token = guarded.administrator("fuzzer@example.com")
        yield process, token, guarded.session(token), guarded.admin


def test_the_fuzzer_knows_every_endpoint() -> None:
    known = {(r.method.lower(), r.path.partition("?")[0]) for r in requests()}
    for path, operations in DOCUMENT["paths"].items():
        for method in operations:
            named = [path.replace("{name}", name) for name in ("Pots", "Moisture", "fuzz", "0-0")]
            assert any((method, name) in known for name in named), f"tests/fuzz/valid.py lacks {method} {path}"


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
    assert process.answers(), process.said()
    assert process.health().status_code == 200
    assert found.start_mb > 50, "the memory of the server wasn't measured"
    faults = found.faults(waits=NUMBER > SHORT)
    assert not faults, f"seed {SEED}: {len(faults)} faults\n" + "\n".join(faults[:20])
    assert "Traceback" not in process.log_file.read_text(errors="replace"), process.said()
