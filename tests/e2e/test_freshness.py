"""Freshness with everything real: an engine that is killed makes the datasets behind its jobs old, and no others."""

import os
import signal
from contextlib import suppress
from typing import Any

import httpx2
import pytest

from caraway.client import Client
from tests.e2e.conftest import World
from tests.tls import TLS

# No rows come during this test, so the next heartbeat through a job begins up to 15 s after the last one. An engine
# that has ended is started again and takes some ten seconds, so it is killed again until the age has shown.
OLD_S = 8.0


@pytest.mark.full(
    reason="kills and recovers an engine for a minute; tests/unit/apps/server/test_freshness.py has the laws"
)
def test_a_killed_engine_makes_the_datasets_behind_it_old(world: World, client: Client) -> None:
    world.ensure(0)
    client.wait(timeout=300, progress=False)

    def asked(path: str) -> Any:
        answer = httpx2.get(f"{world.url}/api/v1/{path}", headers=world.headers, timeout=60, verify=TLS)
        answer.raise_for_status()
        return answer.json()

    def ages() -> dict[str, dict[str, Any]]:
        return {found["dataset"]: found for found in asked("freshness")["datasets"]}

    status = asked("status")
    indexed = {index["dataset"] for index in status["index"]["indexes"]}
    behind = {job["dataset"] for job in status["jobs"]} & indexed
    assert behind
    assert indexed - behind
    world.wait_for(lambda: ages().keys() == indexed)
    world.wait_for(lambda: all(found["seconds"] is not None and not found["waits_for"] for found in ages().values()))
    rows = {index["dataset"]: index["written"] for index in status["index"]["indexes"]}

    def is_old() -> bool:
        pid = world.part("engine").pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        found = ages()
        return all((found[name]["seconds"] or 0.0) > OLD_S for name in behind)

    world.wait_for(is_old)
    found = ages()
    assert all(found[name]["waits_for"].startswith("the job of ") for name in behind)
    assert {name for name in indexed - behind if found[name]["waits_for"].startswith("the job of ")} == set()
    assert max(found[name]["seconds"] for name in indexed - behind) < min(found[name]["seconds"] for name in behind)
    metrics = httpx2.get(f"{world.url}/metrics", headers=world.headers, timeout=60, verify=TLS).text
    shown = {
        name: float(line.rpartition(" ")[2])
        for name in indexed
        for line in metrics.splitlines()
        if line.startswith("caraway_freshness_seconds{") and f'branch="main",dataset="{name}"' in line
    }
    assert min(shown[name] for name in behind) > OLD_S

    world.wait_until_running()
    world.wait_for(lambda: all(ages()[name]["seconds"] < OLD_S for name in behind))
    written = {index["dataset"]: index["written"] for index in asked("status")["index"]["indexes"]}
    assert written.keys() == rows.keys()
    assert all(written[name] == rows[name] for name in indexed - behind), "heartbeats are no rows"
