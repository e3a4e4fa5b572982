"""What all tests share."""

import os

import pytest
from xdist.remote import Producer

from tests.effort import register_profiles
from tests.spread import Groups, in_order, name_apart

register_profiles()
# JVMs of tests live for a minute or two, and Java's better compiler takes longer than that to pay: a broker that starts
# and stops takes 4.0 s of the processor's time without it, and 6.4 with it.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    name_apart(items)
    in_order(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Groups | None:
    """Deal out groups with `--dist loadscope`."""
    return Groups(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.fixture(autouse=True, scope="session")
def _no_settings_from_outside() -> None:
    """Take away the settings of whoever runs the tests; the cache may stay where it is."""
    for name in [name for name in os.environ if name.startswith("CARAWAY_") and name != "CARAWAY_CACHE_DIR"]:
        del os.environ[name]
