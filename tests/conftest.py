"""What all tests share."""

import os

import pytest

from tests.effort import register_profiles

register_profiles()


@pytest.fixture(autouse=True, scope="session")
def _no_settings_from_outside() -> None:
    """Take away the settings of whoever runs the tests; the cache may stay where it is."""
    for name in [name for name in os.environ if name.startswith("CARAWAY_") and name != "CARAWAY_CACHE_DIR"]:
        del os.environ[name]
