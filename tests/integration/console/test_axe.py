"""axe-core finds no fault of accessibility on any page of the console, light and dark.

The browser needs the Debian packages chromium and chromium-driver, and npm fetches axe-core once. Pages allow no
scripts, so axe-core is brought into them by WebDriver, which the policy of a page doesn't bind.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.ui import WebDriverWait

from caraway.state.model import JobState
from tests.integration.console.chromium import chromium
from tests.integration.console.served_site import served
from tests.services.axe import axe_script
from tests.timeouts import scaled
from tests.unit.apps.server.console.site import Site, engine, job_of
from tests.unit.apps.server.console.test_pages import ADDRESSES, address_of_job, form_code, guarded_site

pytestmark = pytest.mark.full(reason="Chromium, for a minute or more")
RUN = "axe.run(document).then(arguments[0], error => arguments[0]({error: String(error)}))"
# A form is sent with fields that the page has not all filled in; its answer is a page as others are.
SEND = """
const form = document.createElement('form');
form.method = 'post';
form.action = arguments[0];
for (const [name, value] of Object.entries(arguments[1])) {
  const input = document.createElement('input');
  input.name = name;
  input.value = value;
  form.append(input);
}
document.body.append(form);
form.submit();
"""
ERRORS = ("/console/dataset?name=Pot", "/console/nothing", "/console/catalog?kind=colour", "/console/catalog?q=nothing")


@pytest.fixture(scope="module")
def axe() -> str:
    return axe_script()


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as driver:
        yield driver


@pytest.fixture
def console() -> Site:
    return guarded_site()


def faults(browser: webdriver.Chrome, axe: str) -> list[str]:
    """Return what axe-core finds in the page that is open."""
    browser.execute_script(axe)
    found: dict[str, Any] = browser.execute_async_script(RUN)
    assert "error" not in found, found
    assert found["passes"], "axe-core looked at nothing"
    return [
        f"{fault['id']}: {fault['help']}: {node['html'][:300]}: {node['failureSummary']}"
        for fault in found["violations"]
        for node in fault["nodes"]
    ]


def looked_at(browser: webdriver.Chrome, axe: str, url: str, addresses: list[str]) -> str:
    """Return what axe-core finds in pages, with their addresses."""
    browser.get(f"{url}/console/sign-in")
    browser.add_cookie({"name": "caraway_session", "value": "admin", "path": "/console"})
    found = {}
    for address in addresses:
        browser.get(url + address)
        found[address] = faults(browser, axe)
    return told(found)


def told(found: Mapping[str, list[str]]) -> str:
    """Return faults as lines."""
    return "\n".join(f"{address}: {fault}" for address, some in found.items() for fault in some)


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest, browser: webdriver.Chrome) -> str:
    """Show pages light or dark."""
    name: str = request.param
    features = [{"name": "prefers-color-scheme", "value": name}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    return name


def test_a_page_has_no_fault(browser: webdriver.Chrome, axe: str, console: Site, scheme: str) -> None:
    with served(console) as url:
        assert looked_at(browser, axe, url, [*ADDRESSES, address_of_job(console), *ERRORS]) == ""
        shown = browser.execute_script("return getComputedStyle(document.documentElement).backgroundColor")
        assert (shown == "rgb(244, 245, 247)") == (scheme == "light")


def test_a_page_about_faults_has_none_itself(browser: webdriver.Chrome, axe: str, console: Site, scheme: str) -> None:
    console.jobs[0] = job_of(console.plan, state=JobState.FAILING, error="no such topic <x>", attempts=4)
    addresses = ["/console", "/console/feature?name=Species.mean", address_of_job(console)]
    with served(console) as url:
        assert looked_at(browser, axe, url, addresses) == ""
        console.engines[0] = engine(alive=False, ago=timedelta(minutes=3))
        assert looked_at(browser, axe, url, addresses) == ""


def test_the_answer_to_a_form_has_no_fault(browser: webdriver.Chrome, axe: str, console: Site, scheme: str) -> None:
    forms = {
        "/console/query": {"outputs": "State.species, State.mean", "rows": '{"Tap.pot": [1, 2]}'},
        "/console/query?": {"outputs": "State.species", "rows": "{"},
        "/console/replay": {"name": "0-7", "row": '{"pot": "x"}'},
        "/console/sign-in": {"token": "nobody's"},
        "/console/why": {"feature": "State.mean", "inputs": '{"Tap.pot": 1}'},
        "/console/why?": {"feature": "State.mean", "inputs": "{"},
        "/console/tokens": {"account": "new@example.com", "role": "reader"},
        "/console/tokens?": {"account": "new@example.com", "days": "x"},
        "/console/revoke": {"name": console.accounts.made[5].id},
        "/console/preview": {"name": "b" * 32},
    }
    with served(console) as url:
        found = {}
        for path, fields in forms.items():
            looked_at(browser, axe, url, ["/console/query"])
            before = browser.find_element("tag name", "html")
            browser.execute_script(SEND, path, {**fields, "code": form_code(console)})
            WebDriverWait(browser, scaled(30)).until(expected_conditions.staleness_of(before))
            found[path] = faults(browser, axe)
        assert told(found) == ""


def test_axe_finds_faults_that_are_there(browser: webdriver.Chrome, axe: str) -> None:
    browser.get("data:text/html,<html><body><img src=x><p style='color:rgb(250,250,250)'>pale</p></body></html>")
    found = " ".join(faults(browser, axe))
    assert all(rule in found for rule in ("image-alt", "html-has-lang", "color-contrast"))
