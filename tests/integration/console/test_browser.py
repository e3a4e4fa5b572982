"""Tests of the console in Chromium with a real server: a person repairs an event, by mouse or keyboard.

`test_killed_engine.py` has a person who finds why a feature is stale. Both need the Debian packages chromium and
chromium-driver.
"""

import json
from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.integration.console.chromium import chromium
from tests.integration.console.person import Person
from tests.integration.server.guarded import Guarded, guarded_server
from tests.integration.server.test_api import pot
from tests.unit.apps.server.console import greenhouse

pytestmark = pytest.mark.full(reason="a server and Chromium, for a minute or more")


@pytest.fixture(scope="module")
def guarded(kafka: str, module_postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Yield a server with tokens that serves the greenhouse, whose job no engine runs."""
    folder, graph = tmp_path_factory.mktemp("console"), greenhouse.graph(Pots=("pii",))
    with guarded_server(folder, kafka=kafka, postgres=module_postgres, graph=graph) as made:
        made.server.log("pots", [pot(1, "oak", size=12.5), pot(2, "elm"), {"pot": "broken", "species": 3}])
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as driver:
        yield driver


@pytest.fixture
def person(browser: webdriver.Chrome, guarded: Guarded) -> Person:
    found = Person(browser, guarded.server)
    found.sign_in(guarded.administrator("on-call"))
    return found


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
