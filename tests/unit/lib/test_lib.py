# Checkers see classes where decorators make datasets and featuresets, and wrong arguments are tested here.
# mypy: disable-error-code="arg-type, call-arg"
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import caraway
from caraway.dtypes import Hopping, Tumbling, Window
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.lib import bucketize, includes, meta
from caraway.lib.includes import included
from caraway.lib.metadata import get_meta_attr, set_meta_attr


def at(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2024, 1, day, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("time", "window", "begin", "end"),
    [
        # Featuresets 4.6.
        (at(5, 5, 30), "1h", at(5, 4), at(5, 5)),
        (at(5, 5), "1h", at(5, 4), at(5, 5)),
        (at(5, 5).replace(tzinfo=None), Tumbling("1h"), at(5, 4), at(5, 5)),
        (at(5, 5, 30), ("1d", "1h"), at(4, 5), at(5, 5)),
        (at(5, 5, 30), Hopping("1d", "1h"), at(4, 5), at(5, 5)),
    ],
)
def test_bucketize(time: datetime, window: Any, begin: datetime, end: datetime) -> None:
    assert bucketize(time, window) == Window(begin=begin, end=end)


def test_includes_are_transitive() -> None:
    def c() -> None: ...

    @includes(c)
    def b() -> None: ...

    @includes(b, c)
    def a() -> None: ...

    assert included(a) == (b, c)


def test_meta() -> None:
    decorated = meta(owner="a.b+c@x-y.co", tags=["x"])(type("T", (), {}))
    assert get_meta_attr(decorated, "owner") == "a.b+c@x-y.co"
    set_meta_attr(decorated, "deleted", value=True)
    assert get_meta_attr(decorated, "deleted") is True
    assert get_meta_attr(decorated, "tags") == ("x",)
    assert get_meta_attr(object(), "owner") is None


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: meta(owner="nobody"), DefinitionError),
        (lambda: meta(color="red"), TypeError),
        (lambda: includes(3), DefinitionTypeError),
        (lambda: bucketize(at(1, 1), 3), DefinitionError),
        (lambda: bucketize(at(1, 1), Hopping("forever", "1h")), DefinitionError),
        (lambda: set_meta_attr(type("T", (), {}), "color", "red"), DefinitionError),
    ],
)
def test_what_is_refused(wrong: Callable[[], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        wrong()


def test_importing_caraway_stays_light() -> None:
    program = (
        "import caraway, sys; heavy = {'polars', 'httpx', 'pyspark', 'sqlalchemy', 'rocksdict', 'confluent_kafka'};"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()
    assert found == "[]"


def test_no_name_of_the_package_is_hidden_by_a_subpackage() -> None:
    subpackages = {module.name for module in pkgutil.iter_modules(caraway.__path__)}
    assert subpackages & set(caraway.__all__) == {"client", "connectors"}


def test_the_names_of_the_package() -> None:
    assert caraway.F is caraway.feature
    assert all(hasattr(caraway, name) for name in caraway.__all__)
