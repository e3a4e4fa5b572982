"""What all tests share."""

import os

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run of CI, fresh ones at the desk; machines under load are slow, not wrong.
settings.register_profile("desk", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("desk"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


@pytest.fixture(autouse=True, scope="session")
def _no_settings_from_outside() -> None:
    """Take away the settings of whoever runs the tests; the cache may stay where it is."""
    for name in [name for name in os.environ if name.startswith("CARAWAY_") and name != "CARAWAY_CACHE_DIR"]:
        del os.environ[name]
