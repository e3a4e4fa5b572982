"""Chromium without a window. It needs the Debian packages chromium and chromium-driver."""

from collections.abc import Iterator
from contextlib import contextmanager

from selenium import webdriver

from tests.timeouts import scaled

LOAD_S = 30.0


@contextmanager
def chromium(width: int = 1280) -> Iterator[webdriver.Chrome]:
    """Start a browser, and end it afterwards."""
    options = webdriver.ChromeOptions()
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},900"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    driver.set_page_load_timeout(scaled(LOAD_S))
    driver.set_script_timeout(scaled(LOAD_S))
    try:
        yield driver
    finally:
        driver.quit()
