"""Tests of the console in Chromium with a real server: a person on call finds what is wrong.

They need the Debian packages chromium and chromium-driver.
"""

import json
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import sqlalchemy as sa
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from caraway.cluster.leases import Lease
from caraway.graph.wire.graphs import CommitRequest, encode_commit
from caraway.state.access import Access
from caraway.state.database import connect
from caraway.state.permissions import Grant, Mode
from tests.integration.console.chromium import chromium
from tests.integration.console.person import Person
from tests.integration.server.server_process import ServerProcess, eventually
from tests.integration.server.test_api import pot
from tests.timeouts import scaled
from tests.unit.console import greenhouse

pytestmark = pytest.mark.full(reason="a server and Chromium, for a minute or more")
# The lease of an engine lasts so long after its last renewal.
LEASE = timedelta(seconds=2)


@pytest.fixture(scope="module")
def engine(module_postgres: str) -> Iterator[sa.Engine]:
    engine = connect(module_postgres)
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def console(
    kafka: str, module_postgres: str, engine: sa.Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """Yield a server with tokens that serves the greenhouse, whose job no engine runs."""
    process = ServerProcess(tmp_path_factory.mktemp("console"), kafka=kafka, postgres=module_postgres, tokens=True)
    process.start()
    _, token = Access(engine, by="test").create_token("root@example.com", roles_given=["admin"])
    process.http.headers["Authorization"] = f"Bearer {token}"
    eventually(lambda: process.http.get("/status").status_code == 200, process.said)
    graph = greenhouse.graph(Pots=("pii",))
    answer = process.http.post("/commit", content=encode_commit(CommitRequest(message="the greenhouse", graph=graph)))
    assert answer.status_code == 200, answer.text
    process.log("pots", [pot(1, "oak", size=12.5), pot(2, "elm"), {"pot": "broken", "species": 3}])
    yield process
    assert process.stop() == 0, process.said()


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as driver:
        yield driver


@pytest.fixture
def person(browser: webdriver.Chrome, console: ServerProcess, engine: sa.Engine) -> Person:
    _, token = Access(engine, by="test").create_token("on-call", roles_given=["admin"])
    eventually(
        lambda: console.http.get("/status", headers={"Authorization": f"Bearer {token}"}).status_code == 200,
        console.said,
    )
    found = Person(browser, console)
    found.sign_in(token)
    return found


def test_a_person_finds_why_a_feature_is_stale(person: Person, engine: sa.Engine) -> None:
    """An engine that was killed renews its lease no more; the rest of a kill has its tests where engines run."""
    lease = Lease(engine=engine, name="engine/console", owner="console")
    assert lease.claim(LEASE, succeeds=True) is not None

    def reported() -> bool:
        person.open("/console")
        return "No engine runs since" in person.text

    eventually(reported, lambda: person.text)
    started = time.monotonic()
    search = person.browser.find_element(By.ID, "search")
    search.send_keys("Species mean", Keys.ENTER)
    person.sees("Species.mean")
    person.follow("Species.mean")
    person.sees("so 1 job of Wetness computes nothing")
    person.sees("caraway up")
    person.follow("picture")
    person.sees("Lineage of Species.mean")
    person.browser.find_element(By.CSS_SELECTOR, "svg a[aria-label='dataset Wetness']").click()
    person.sees("Lineage of Wetness")
    assert time.monotonic() - started < scaled(60)


def test_a_person_finds_and_repairs_a_broken_event(person: Person) -> None:
    person.follow("Dead letters")
    person.sees("expected")
    person.browser.find_element(By.CSS_SELECTOR, "tbody th a").click()
    person.sees("Why it was refused")
    row = person.browser.find_element(By.ID, "json")
    row.clear()
    row.send_keys(json.dumps(pot(7, "ash")))
    person.browser.find_element(By.CSS_SELECTOR, "main button").click()
    person.sees("It was sent to Pots.")


def test_the_keyboard_is_enough(person: Person) -> None:
    person.open("/console/catalog")
    body = person.browser.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    assert person.browser.switch_to.active_element.text == "Skip to the content"
    person.browser.switch_to.active_element.send_keys(Keys.ENTER)
    person.browser.switch_to.active_element.send_keys(Keys.TAB)
    assert person.browser.switch_to.active_element.get_attribute("id") == "words"


def test_a_page_has_only_what_its_role_may_see(person: Person, console: ServerProcess, engine: sa.Engine) -> None:
    access = Access(engine, by="test")
    access.define_role("no-pii", [Grant(modes=frozenset(Mode), without=frozenset({"pii"}))])
    _, token = access.create_token("limited", roles_given=["no-pii"])
    eventually(
        lambda: console.http.get("/status", headers={"Authorization": f"Bearer {token}"}).status_code == 200,
        console.said,
    )
    person.sign_in(token)
    person.open("/console/catalog?q=Pots")
    assert "Pots" not in person.browser.find_element(By.TAG_NAME, "main").text
    person.open("/console/dataset?name=Pots")
    person.sees("There is nothing here")
