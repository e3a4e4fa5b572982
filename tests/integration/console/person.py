"""A person who uses the console in Chromium."""

from selenium import webdriver
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
        self.browser.find_element(By.PARTIAL_LINK_TEXT, words).click()

    @property
    def text(self) -> str:
        return self.browser.find_element(By.TAG_NAME, "body").text

    def sees(self, words: str) -> None:
        WebDriverWait(self.browser, scaled(WAIT_S)).until(lambda _: words in self.text, f"no {words!r} in: {self.text}")

    def search(self, words: str) -> None:
        self.browser.find_element(By.ID, "search").send_keys(words, Keys.ENTER)

    def loads_until(self, words: str) -> None:
        """Load the page again, as its last link does, until it has some words."""

        def has_them(_: object) -> bool:
            if words in self.text:
                return True
            self.browser.find_element(By.LINK_TEXT, "Load again").click()
            return words in self.text

        WebDriverWait(self.browser, scaled(WAIT_S)).until(has_them, f"no {words!r} in: {self.text}")
