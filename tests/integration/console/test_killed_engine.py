"""A person finds in the console why a feature is stale after `kill -9` of a real engine, and sees when it is back.

The server, the engine with Spark, Kafka and Postgres are processes of their own, and the browser is Chromium.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.integration.console.chromium import chromium
from tests.integration.console.person import Person
from tests.integration.server.engine_process import EngineProcess
from tests.integration.server.guarded import Guarded, guarded_server
from tests.integration.server.server_process import eventually
from tests.integration.server.test_api import pot
from tests.timeouts import scaled
from tests.unit.apps.server.console import greenhouse

pytestmark = [
    pytest.mark.full(reason="a server, an engine with Spark that is killed and started again, and Chromium: minutes"),
    pytest.mark.timeout(900),
]
# Other tests may write to the same topics, but not rows with these values.
POT, SPECIES = 4_711, "oak of the killed engine"
# The most seconds from the kill until the person knows the reason and the remedy.
FOUND_S = 60.0


@pytest.fixture
def guarded(kafka: str, postgres: str, tmp_path: Path) -> Iterator[Guarded]:
    with guarded_server(tmp_path / "server", kafka=kafka, postgres=postgres, graph=greenhouse.graph()) as made:
        yield made


@pytest.fixture
def engine(guarded: Guarded, tmp_path: Path) -> Iterator[EngineProcess]:
    made = EngineProcess(guarded.server, tmp_path / "engine")
    yield made
    made.end()


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as driver:
        yield driver


def reading(pot_id: int, moisture: float) -> dict[str, Any]:
    return {"pot": pot_id, "moisture": moisture, "at": datetime.now(UTC).isoformat()}


def test_a_person_finds_why_a_feature_is_stale_after_a_kill(
    guarded: Guarded, engine: EngineProcess, browser: webdriver.Chrome
) -> None:
    server = guarded.server
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
    person.sign_in(guarded.admin)
    person.open("/console/feature?name=Species.mean")
    person.loads_until("Yes: all that it is computed from keeps up.")

    started = time.monotonic()
    engine.kill()
    server.log("readings", [reading(POT, 0.75)])
    person.follow("Overview")
    # The lease of the engine ends some seconds after its last sign of life.
    person.loads_until("No engine runs since")
    person.sees("so 2 jobs of Moisture, Wetness compute nothing")
    person.search("Species mean")
    person.follow("Species.mean")
    person.sees("No engine runs since")
    person.sees("Start an engine: caraway up does")
    person.follow("picture")
    # The label of a box ends with its health.
    person.click(By.CSS_SELECTOR, "svg a[aria-label^='dataset Wetness']")
    person.sees("Lineage of Wetness")
    took = time.monotonic() - started
    assert took < scaled(FOUND_S), took
    # The feature is stale indeed: the reading after the kill isn't in it.
    assert mean() == 0.25

    engine.start()
    eventually(lambda: mean() == 0.5, said)
    person.open("/console/feature?name=Species.mean")
    person.loads_until("Yes: all that it is computed from keeps up.")
