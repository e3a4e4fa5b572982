"""A changed pipeline while queries run: the old one serves until the new one has caught up; then all switch at once."""

import json
import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pandas as pd
import pytest
from typer.testing import CliRunner

from caraway.apps.cli import app
from caraway.client import Client, find_server
from tests.e2e.conftest import World
from tests.e2e.pipes import definitions
from tests.integration.server.server_process import ServerProcess
from tests.tls import TLS

log = logging.getLogger(__name__)

BRANCH = "switch"
ROWS, KEYS = 20_000, 10
# A server looks for a new commit once a second; a machine that does a lot besides takes longer.
VISIBLE_SECONDS = 5.0
EVENTS_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Watch:
    """Asks a server all the time, and keeps each answer that differs from the one before, with its time."""

    url: str
    answers: list[tuple[datetime, tuple[tuple[int, ...], tuple[int, ...]]]] = field(default_factory=list)
    asked: int = 0
    error: str = ""

    def ask(self, http: httpx2.Client) -> None:
        body = {
            "inputs": ["Pipe.pipe"],
            "outputs": ["Pipe.flow", "Pipe.double"],
            "data": {"Pipe.pipe": list(range(KEYS))},
        }
        answer = http.post(f"{self.url}/api/v1/query", json=body, headers={"X-Caraway-Branch": BRANCH})
        if answer.status_code != 200:
            self.error = answer.text
            return
        given = answer.json()
        self.asked += 1
        values = tuple(given["Pipe.flow"]), tuple(given["Pipe.double"])
        if not self.answers or self.answers[-1][1] != values:
            self.answers.append((datetime.now(UTC), values))


@contextmanager
def watching(urls: list[str]) -> Iterator[list[Watch]]:
    """Ask some servers as long as the block lasts."""
    watches, stopping = [Watch(url) for url in urls], threading.Event()

    def run(watch: Watch) -> None:
        token = find_server(watch.url).token
        with httpx2.Client(
            timeout=60, headers={"Authorization": f"Bearer {token}"} if token else {}, verify=TLS
        ) as http:
            # All the time, and yet the jobs shall have some of it, too.
            while not stopping.wait(0.01):
                watch.ask(http)

    threads = [threading.Thread(target=run, args=(watch,)) for watch in watches]
    for thread in threads:
        thread.start()
    try:
        yield watches
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


@pytest.fixture
def other(world: World, tmp_path: Path) -> Iterator[ServerProcess]:
    """A second server of the same deployment."""
    settings = world.stack.settings
    assert settings.postgres.url is not None
    server = ServerProcess(tmp_path, kafka=settings.kafka, postgres=settings.postgres.url)
    server.start()
    yield server
    server.kill()
    server.http.close()


@pytest.mark.full(reason="two minutes with a second server; the switch has tests of its own, without Spark")
def test_a_changed_pipeline_switches_as_a_whole(world: World, other: ServerProcess) -> None:
    raw = httpx2.Client(base_url=f"{world.url}/api/v1", headers=world.headers, verify=TLS)
    with closing(Client(world.url, branch=BRANCH)) as client, raw as http:
        client.init_branch(BRANCH)
        client.commit("positive", *definitions(1))
        taps = pd.DataFrame({"pipe": [n % KEYS for n in range(ROWS)], "litres": [n % 7 + 1 for n in range(ROWS)]})
        taps["at"] = [EVENTS_BEGIN + timedelta(seconds=n) for n in range(ROWS)]
        client.log("switch", "taps", taps, batch_size=5000)
        sums = taps.groupby("pipe")["litres"].sum()
        totals = tuple(int(sums[pipe]) for pipe in range(KEYS))
        old = totals, tuple(2 * total for total in totals)
        new = tuple(-total for total in totals), tuple(-2 * total for total in totals)

        def entries() -> list[dict[str, Any]]:
            told: list[dict[str, Any]] = http.get("/ledger", params={"closed": 500}).json()["entries"]
            return [entry for entry in told if entry["dataset"] in {"Flow", "Double"} and entry["deed"] == "create"]

        def serves(values: object) -> Callable[[], bool]:
            return lambda: all(watch.answers and watch.answers[-1][1] == values for watch in watches)

        with watching([world.url, str(other.settings.server.url)]) as watches:
            world.wait_for(serves(old))
            world.wait_for(lambda: all(entry["state"] == "done" for entry in entries()))
            first = {entry["asset"] for entry in entries()}
            engine = world.part("engine")
            assert engine.pid is not None
            summary = "".join(client.commit("negative", *definitions(2)).json()["summary"])
            # Rows travel in blocks, and the markers of waits count as one each, so it is an estimate.
            sizes = re.findall(r" reads about ([0-9,]+) records, with its start in about [0-9]+ s", summary)
            assert [ROWS <= int(each.replace(",", "")) < 1.1 * ROWS for each in sizes] == [True, True], summary

            def reads() -> bool:
                jobs = http.get("/status").json()["jobs"]
                running = {f"job:{job['id']}" for job in jobs if job["state"] == "running"}
                return not running.isdisjoint({entry["asset"] for entry in entries()} - first)

            # In the middle of it, the engine dies: a job runs, and reports only seconds later that it has caught up.
            world.wait_for(reads)
            os.kill(engine.pid, signal.SIGKILL)
            # A start of Spark and of all jobs.
            world.wait_for(serves(new), seconds=300)
            turned = [entry for entry in entries() if entry["asset"] not in first]
        assert {entry["state"] for entry in turned} == {"done"}
        made = {entry["asset"] for entry in turned}
        assert {asset.partition(":")[0] for asset in made} == {"topic", "job", "index"}
        ready_at = max(datetime.fromisoformat(entry["closed_at"]) for entry in turned)
        for watch in watches:
            assert watch.error == ""
            values = [value for _, value in watch.answers]
            # Nobody was told anything of both. The other server's index may be a moment behind
            # (docs/operate/control.md).
            told_later = values[values.index(old) + 1 :]
            assert all(total <= 0 for value in told_later for part in value for total in part), values
            assert told_later[-1] == new, values
            turned_at = next(at for at, value in watch.answers if value[0][0] < 0)
            seconds = (turned_at - ready_at).total_seconds()
            log.info("%d queries; the new one was seen %.2f s after it was ready", watch.asked, seconds)
            assert seconds < VISIBLE_SECONDS
        # The one that works off the ledger has nothing of half of the new one, either.
        assert any([value for _, value in watch.answers][-2:] == [old, new] for watch in watches)
        # The server reports all jobs and the engine of each, here the one that was started again.
        told = CliRunner().invoke(app, ["jobs", "--url", world.url, "--json"])
        engines = {job["id"]: job["engine"] for job in json.loads(told.stdout)}
        assert {job.removeprefix("job:") for job in made if job.startswith("job:")} <= engines.keys()
        assert len(set(engines.values())) == 1, engines
        world.wait_until_running()
        client.delete_branch(BRANCH)
