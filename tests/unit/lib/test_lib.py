# Type checkers see classes where decorators make datasets and featuresets, and the tests pass wrong arguments.
# mypy: disable-error-code="arg-type, call-arg, index, list-item"
import pkgutil
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import caraway
from caraway.dtypes import Continuous, Hopping, Session, Tumbling, Window
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.capture.includes import included
from caraway.graph.runtime import secret_provider
from caraway.graph.specs import Metadata
from caraway.integrations.aws import Secret
from caraway.lib import bucketize, desc, includes, meta, secrets
from caraway.lib.metadata import get_meta_attr, get_metadata, set_meta_attr
from tests.unit.refusals import check


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


@pytest.mark.spec("connectors:9.2:2", "connectors:9.2:4")
def test_meta() -> None:
    decorated = meta(owner="a.b+c@x-y.co", tags=["x"])(type("T", (), {}))
    assert get_meta_attr(decorated, "owner") == "a.b+c@x-y.co"
    set_meta_attr(decorated, "deleted", value=True)
    assert get_meta_attr(decorated, "deleted") is True
    assert get_meta_attr(decorated, "tags") == ("x",)
    assert get_meta_attr(object(), "owner") is None


def test_a_second_meta_replaces_the_first() -> None:
    twice = meta(owner="b@x.co")(meta(owner="a@x.co", description="first", deprecated=True)(type("T", (), {})))
    assert get_metadata(twice) == Metadata(owner="b@x.co")
    assert desc(twice) == ""


def test_metadata_is_never_inherited_by_subclasses() -> None:
    above = meta(owner="a@x.co")(type("Above", (), {}))
    assert get_meta_attr(type("Below", (above,), {}), "owner") is None


def test_secrets_are_known_while_a_users_function_runs() -> None:
    with pytest.raises(NotImplementedError, match="'token'"):
        secrets.get("token")
    token = secret_provider.set({"token": "x"}.__getitem__)
    try:
        assert secrets.get("token") == "x"
        with pytest.raises(KeyError):
            secrets.get("gone")
    finally:
        secret_provider.reset(token)


def test_a_part_of_a_secret_is_another_secret() -> None:
    whole = Secret("arn:aws:secretsmanager:x", role_arn="arn:aws:iam::role")
    part = whole["a"]["b"]
    assert (part.arn, part.role_arn, part.path) == (whole.arn, whole.role_arn, ["a", "b"])
    assert whole.path is None
    assert len({part, Secret(whole.arn, whole.role_arn, ["a", "b"]), whole}) == 2
    assert whole.arn in repr(part)


@pytest.mark.parametrize(
    ("wrong", "error", "facts"),
    [
        (lambda: meta(owner="nobody"), DefinitionError, "nobody|email"),
        (lambda: meta(color="red"), TypeError, "color"),
        (lambda: includes(3), DefinitionTypeError, "@includes|int 3"),
        (lambda: bucketize(at(1, 1), 3), DefinitionError, ""),
        (lambda: bucketize(at(1, 1), Continuous("forever")), DefinitionError, ""),
        (lambda: bucketize(at(1, 1), Session("1h")), DefinitionError, ""),
        (lambda: bucketize(at(1, 1), Hopping("forever", "1h")), DefinitionError, ""),
        (lambda: set_meta_attr(type("T", (), {}), "color", "red"), DefinitionError, ""),
        (lambda: meta(tags="pii"), DefinitionTypeError, ""),
        (lambda: meta(tags=[1]), DefinitionTypeError, ""),
        (lambda: meta(description=3), DefinitionTypeError, ""),
        (lambda: meta(owner=3), DefinitionTypeError, ""),
        (lambda: bucketize(at(1, 1), ("1d",)), DefinitionError, ""),
        (lambda: bucketize(at(1, 1), "no duration"), DefinitionError, ""),
        (lambda: Secret(""), DefinitionError, ""),
        (lambda: Secret(3), DefinitionError, ""),
        (lambda: Secret("arn", role_arn=""), DefinitionError, ""),
        (lambda: Secret("arn", path="a"), DefinitionError, ""),
        (lambda: Secret("arn")[3], DefinitionError, ""),
    ],
)
def test_what_is_refused(wrong: Callable[[], Any], error: type[Exception], facts: str) -> None:
    check(wrong, error, facts)


def test_no_name_of_the_package_is_hidden_by_a_subpackage() -> None:
    subpackages = {module.name for module in pkgutil.iter_modules(caraway.__path__)}
    assert subpackages & set(caraway.__all__) == {"client", "connectors"}


def test_the_names_of_the_package() -> None:
    assert caraway.F is caraway.feature
    assert all(hasattr(caraway, name) for name in caraway.__all__)
