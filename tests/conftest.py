"""Settings and fixtures that all tests share."""

import gc
import os
from collections.abc import Generator

import pytest
from xdist.remote import Producer

from tests.accounting import Times
from tests.effort import PROFILE, default_timeout, register_profiles
from tests.spread import Groups, in_order, name_apart
from tests.tiers import check_reasons, mark_long
from tests.timeouts import scale_timeout

register_profiles()
# These tests are collected where they are imported.
pytest.register_assert_rewrite("tests.unit.dataplane.sinks.table_contract", "tests.integration.tables.reading_contract")
# JVMs of tests live for a minute or two, and Java's better compiler takes longer than that to pay: a broker that starts
# and stops takes 4.0 s of the processor's time without it, and 6.4 with it.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
if PROFILE == "ci":
    # Frames of tests are small, and each core has a test process: more threads only wait for each other.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", action="store_true", help="print what tests, fixtures and programs took")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("times"):
        config.pluginmanager.register(Times(), "times")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_long(items)
    check_reasons(items)
    name_apart(items)
    in_order(items)


def pytest_collection_finish() -> None:
    # The tests and their modules stay until the end, so Python's collector need not look at them again and again.
    gc.freeze()


def pytest_unconfigure() -> None:
    # Frozen objects would still be there when the process ends, and libraries would report them as leaked.
    gc.unfreeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    # Before pytest-timeout reads the limit; the conftests of folders have set theirs by now.
    scale_timeout(item, default_timeout(float(item.config.getini("timeout"))))
    return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Groups | None:
    """Deal out groups with `--dist loadscope`."""
    return Groups(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.fixture(autouse=True, scope="session")
def _no_settings_from_outside(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Remove the settings of the user who runs the tests, and the list of their stacks; the cache stays."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    for name in [name for name in os.environ if name.startswith("CARAWAY_") and name != "CARAWAY_CACHE_DIR"]:
        del os.environ[name]
