"""A person finds in the console why a feature is stale after `kill -9` of a real engine, and sees when it is back.

The server, the engine with Spark, Kafka and Postgres are processes of their own, and the browser is Chromium.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from caraway.config.settings import Settings, SparkSettings
from caraway.graph.wire.graphs import CommitRequest, encode_commit
from caraway.state.access import Access
from caraway.state.database import connect
from tests.integration.console.chromium import chromium
from tests.integration.console.person import Person
from tests.integration.server.server_process import ServerProcess, eventually
from tests.integration.server.test_api import pot
from tests.integration.spark.broker import jars
from tests.timeouts import scaled
from tests.unit.console import greenhouse

pytestmark = [
    pytest.mark.full(reason="a server, an engine with Spark that is killed and started again, and Chromium: minutes"),
    pytest.mark.timeout(900),
]
# Other tests may write to the same topics, but not rows with these values.
POT, SPECIES = 4_711, "oak of the killed engine"
# The most seconds that the person may take, from the first look at the overview to the remedy.
FOUND_S = 60.0


class EngineProcess:
    """`python -m caraway.engine` for the jobs of a server. Nothing but the test starts it again."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        folder.mkdir()
        self._log = folder / "engine.log"
        found = server.settings
        spark = SparkSettings(
            master="local[64]",
            driver_memory="768m",
            checkpoint_interval_seconds=5,
            jars=tuple(jars().connector),
        )
        settings = Settings(data_dir=folder, kafka=found.kafka, postgres=found.postgres, spark=spark)
        self._environment = {**os.environ, **settings.environment()}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "caraway.engine"]
            self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.said()
        os.kill(self._process.pid, SIGKILL)
        assert self._process.wait() == -SIGKILL

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def said(self) -> str:
        return self._log.read_text()[-4000:]


@pytest.fixture
def server(kafka: str, postgres: str, tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "server", kafka=kafka, postgres=postgres, tokens=True)
    process.start()
    yield process
    assert process.stop() == 0, process.said()


@pytest.fixture
def engine(server: ServerProcess, tmp_path: Path) -> Iterator[EngineProcess]:
    made = EngineProcess(server, tmp_path / "engine")
    yield made
    made.end()


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as driver:
        yield driver


def reading(pot_id: int, moisture: float) -> dict[str, Any]:
    return {"pot": pot_id, "moisture": moisture, "at": datetime.now(UTC).isoformat()}


def test_a_person_finds_why_a_feature_is_stale_after_a_kill(
    server: ServerProcess, engine: EngineProcess, browser: webdriver.Chrome, postgres: str
) -> None:
    database = connect(postgres)
    _, token = Access(database, by="test").create_token("on-call", roles_given=["admin"])
    database.dispose()
    server.http.headers["Authorization"] = f"Bearer {token}"
    eventually(lambda: server.http.get("/status").status_code == 200, server.said)
    commit = encode_commit(CommitRequest(message="the greenhouse", graph=greenhouse.graph()))
    answer = server.http.post("/commit", content=commit)
    assert answer.status_code == 200, answer.text
    engine.start()

    def mean() -> float | None:
        asked = {"inputs": ["Species.species"], "outputs": ["Species.mean"], "data": [{"Species.species": SPECIES}]}
        answer = server.http.post("/query", json=asked)
        assert answer.status_code == 200, answer.text
        found: float | None = answer.json()["Species.mean"][0]
        return found

    def said() -> str:
        return server.said() + engine.said()

    server.log("pots", [pot(POT, SPECIES, size=12.5)])
    server.log("readings", [reading(POT, 0.25)])
    eventually(lambda: mean() == 0.25, said)
    person = Person(browser, server)
    person.sign_in(token)
    person.open("/console/feature?name=Species.mean")
    person.loads_until("Yes: all that it is computed from keeps up.")

    engine.kill()
    server.log("readings", [reading(POT, 0.75)])
    started = time.monotonic()
    person.follow("Overview")
    # The lease of the engine ends some seconds after its last sign of life.
    person.loads_until("No engine runs since")
    person.sees("so 1 job of Wetness computes nothing")
    person.search("Species mean")
    person.follow("Species.mean")
    person.sees("No engine runs since")
    person.sees("Start an engine: caraway up does")
    person.follow("picture")
    person.browser.find_element(By.CSS_SELECTOR, "svg a[aria-label='dataset Wetness']").click()
    person.sees("Lineage of Wetness")
    took = time.monotonic() - started
    assert took < scaled(FOUND_S), took
    # The feature is stale indeed: the reading after the kill isn't in it.
    assert mean() == 0.25

    engine.start()
    eventually(lambda: mean() == 0.5, said)
    person.open("/console/feature?name=Species.mean")
    person.loads_until("Yes: all that it is computed from keeps up.")
