"""A person who uses the console in Chromium."""

from collections.abc import Callable

from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException, TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.integration.server.server_process import ServerProcess
from tests.timeouts import scaled

WAIT_S = 30.0


class Person:
    """Somebody who sees pages, follows links and fills in forms."""

    def __init__(self, browser: webdriver.Chrome, console: ServerProcess) -> None:
        self.browser, self.url = browser, str(console.settings.server.url)

    def open(self, address: str) -> None:
        self.browser.get(self.url + address)

    def sign_in(self, token: str) -> None:
        self.browser.delete_all_cookies()
        self.open("/console")
        self.browser.find_element(By.ID, "token").send_keys(token, Keys.ENTER)
        self.sees("What is wrong now")

    def follow(self, words: str) -> None:
        self.click(By.PARTIAL_LINK_TEXT, words)

    def click(self, by: str, words: str) -> None:
        """Click what is found by some words, once the page that has it is there."""

        def is_clicked() -> bool:
            self.browser.find_element(by, words).click()
            return True

        self._wait(is_clicked, words)

    @property
    def text(self) -> str:
        return self.browser.find_element(By.TAG_NAME, "body").text

    def sees(self, words: str) -> None:
        self._wait(lambda: words in self.text, words)

    def search(self, words: str) -> None:
        self.browser.find_element(By.ID, "search").send_keys(words, Keys.ENTER)

    def loads_until(self, words: str) -> None:
        """Load the page again, as its last link does, until it has some words."""

        def has_them() -> bool:
            if words in self.text:
                return True
            self.browser.find_element(By.LINK_TEXT, "Load again").click()
            return words in self.text

        self._wait(has_them, words)

    def _wait(self, holds: Callable[[], bool], words: str) -> None:
        # While a page is loaded there is nothing to see, or what was there is gone.
        waiting = WebDriverWait(
            self.browser, scaled(WAIT_S), ignored_exceptions=(NoSuchElementException, StaleElementReferenceException)
        )
        try:
            waiting.until(lambda _: holds())
        except TimeoutException:
            raise AssertionError(f"no {words!r} in: {self.text}") from None
