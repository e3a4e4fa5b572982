"""A person signs in to the console by an identity provider in Chromium, which comes back from another site.

A cookie that is for the same site only isn't sent with that request, and pages may load nothing of other sites, so
only a real browser shows that the sign-in comes to its end.
"""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.integration.console.chromium import chromium
from tests.integration.console.person import Person
from tests.integration.server.guarded import Guarded
from tests.integration.server.test_oidc import guarded, identity
from tests.services.oidc import PASSWORD, IdentityProvider, running_provider

__all__ = ["guarded", "identity"]

pytestmark = pytest.mark.full(reason="a server and Chromium; server/test_oidc.py signs in without a browser")


@pytest.fixture(scope="module")
def running() -> Iterator[IdentityProvider]:
    with running_provider() as provider:
        # Ports of one host are one site; another name of the machine is another site.
        provider.set(front=provider.issuer.replace("127.0.0.1", "localhost"))
        yield provider


@pytest.fixture
def person(guarded: Guarded, identity: IdentityProvider) -> Iterator[Person]:
    del identity
    with chromium() as browser:
        yield Person(browser, guarded.server)


def sign_in(person: Person, password: str) -> None:
    """Go to the provider by the link of the console, and fill in its form."""
    person.browser.find_element(By.CSS_SELECTOR, 'a[href^="/console/sign-in/provider"]').click()
    assert urlsplit(person.browser.current_url).hostname == "localhost"
    person.browser.find_element(By.NAME, "password").send_keys(password)
    person.browser.find_element(By.TAG_NAME, "button").click()


def is_signed_in(browser: webdriver.Chrome) -> bool:
    return browser.get_cookie("caraway_session") is not None


def test_a_person_comes_back_from_the_provider_to_the_page_that_was_wanted(person: Person) -> None:
    browser = person.browser
    person.open("/console/catalog")
    assert not is_signed_in(browser)
    sign_in(person, PASSWORD)
    person.sees("Sign out")
    assert "oidc:ada" in browser.page_source
    assert browser.current_url == f"{person.url}/console/catalog"
    cookie = browser.get_cookie("caraway_session") or {}
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/console")
    assert browser.execute_script("return document.cookie") == ""
    # The console's policy has refused nothing on the way.
    messages = [entry["message"] for entry in browser.get_log("browser")]  # type: ignore[no-untyped-call]
    assert [text for text in messages if "Security Policy" in text] == []
    person.open("/console")
    person.sees("What is wrong now")
    browser.find_element(By.CSS_SELECTOR, 'form[action="/console/sign-out"] button').click()
    person.open("/console/catalog")
    assert not is_signed_in(browser)
    assert browser.find_elements(By.CSS_SELECTOR, 'a[href^="/console/sign-in/provider"]')


def test_a_person_whom_the_provider_refuses_is_told_so(person: Person) -> None:
    person.open("/console")
    sign_in(person, "wrong")
    person.sees("refused")
    assert not is_signed_in(person.browser)
    assert urlsplit(person.browser.current_url).hostname == "127.0.0.1"
