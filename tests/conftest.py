"""What all tests share."""

import os

import pytest

from tests.effort import register_profiles
from tests.spread import deal

register_profiles()
# Java's better compiler works longer than most of our tests last: without it a broker or a Spark session takes half of
# the processor's time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    deal(items)


@pytest.fixture(autouse=True, scope="session")
def _no_settings_from_outside() -> None:
    """Take away the settings of whoever runs the tests; the cache may stay where it is."""
    for name in [name for name in os.environ if name.startswith("CARAWAY_") and name != "CARAWAY_CACHE_DIR"]:
        del os.environ[name]
