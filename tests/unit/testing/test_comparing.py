"""The functions of the testing package beside the mock."""

# mypy: disable-error-code="no-untyped-def, attr-defined, arg-type, list-item"

import math
from typing import Any

import pandas as pd
import pytest

import caraway.testing
from caraway import featureset
from caraway.client import Client
from caraway.errors import DefinitionError, DefinitionTypeError, InvalidInputError, UnavailableError
from caraway.graph.wire.graphs import decode_commit, encode_commit
from caraway.testing import (
    IntegrationClient,
    InternalTestClient,
    LocalClient,
    almost_equal,
    erase_extractor_pycode,
    erase_operator_pycode,
    error_message,
    get_extractor_func,
)
from tests.unit.testing import shop
from tests.unit.testing.shop import Buyer, Orders, Request, Spending, Users

__owner__ = "tests@example.com"


def test_the_package_exports_exactly_what_it_says() -> None:
    names = (
        "mock log MockClient InternalTestClient IntegrationClient LocalClient get_extractor_func almost_equal "
        "error_message erase_extractor_pycode erase_operator_pycode"
    )
    assert sorted(caraway.testing.__all__) == sorted(names.split())


@pytest.mark.spec("featuresets:9.5:1")
def test_almost_equal() -> None:
    assert almost_equal(1.0, 1.0 + 1e-7)
    assert not almost_equal(1.0, 1.0 + 1e-5)
    assert almost_equal(1.0, 1.5, epsilon=1)
    assert almost_equal(math.nan, math.nan)
    assert not almost_equal(math.nan, 1.0)


@pytest.mark.spec("featuresets:9.5:2")
def test_an_internal_client_builds_commits_without_a_server() -> None:
    client = InternalTestClient()
    for entity in (*shop.DATASETS, *shop.FEATURESETS):
        client.add(entity)
    request = client.commit_request("first")
    assert [d.name for d in request.graph.datasets] == ["Users", "Orders", "Spending"]
    assert decode_commit(encode_commit(request)) == request
    with pytest.raises(DefinitionError, match=r"Users.*already"):
        client.add(Users)
    with pytest.raises(NotImplementedError, match="3"):
        client.add(3)


@pytest.mark.spec("featuresets:9.5:3")
def test_a_local_client_is_a_plain_client() -> None:
    client = LocalClient("http://caraway.test", "secret", "dev")
    assert isinstance(client, Client)
    assert (client.url, client.token, client.branch()) == ("http://caraway.test", "secret", "dev")


@pytest.mark.spec("featuresets:9.5:4")
def test_an_integration_client_needs_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CARAWAY_URL", raising=False)
    with pytest.raises(UnavailableError, match=r"caraway up.*CARAWAY_URL"):
        IntegrationClient()
    monkeypatch.setenv("CARAWAY_URL", "http://caraway.test")
    monkeypatch.setenv("CARAWAY_TOKEN", "secret")
    client = IntegrationClient(branch="dev")
    assert (client.url, client.token, client.branch()) == ("http://caraway.test", "secret", "dev")
    assert (client.is_integration_client(), client.integration_mode()) == (True, "inmemory")
    assert IntegrationClient("http://other.test", "").url == "http://other.test"
    slept: list[float] = []
    monkeypatch.setattr("caraway.testing.integration.time.sleep", slept.append)
    client.sleep()
    client.sleep(1)
    assert slept == [7, 1]


def extractor_spec(name: str = "greet") -> Any:
    return next(e for e in Buyer.to_spec().extractors if e.name == name)


@pytest.mark.spec("featuresets:9.5:5")
def test_a_committed_extractor_can_be_called() -> None:
    call = get_extractor_func(extractor_spec())
    result = call(pd.Series(pd.to_datetime(["2024-05-01"], utc=True)), pd.Series(["Ann"]))
    assert (result.name, result.tolist()) == ("Buyer.greeting", ["Hello Ann"])
    with pytest.raises(InvalidInputError, match=r"greet.*erased"):
        get_extractor_func(erase_extractor_pycode(extractor_spec()))
    with pytest.raises(DefinitionTypeError, match="LookupExtractor"):
        get_extractor_func(extractor_spec("_caraway_lookup_Users.name"))


@pytest.mark.spec("featuresets:9.5:6")
def test_differences_are_spelled_by_line() -> None:
    actual, expected = Users.to_spec(), Orders.to_spec()
    assert error_message(actual, actual) == ""
    said = error_message(actual, expected)
    assert "-name: 'Orders'" in said
    assert "+name: 'Users'" in said


@pytest.mark.spec("featuresets:9.5:7")
def test_code_can_be_erased_for_comparisons() -> None:
    spec = extractor_spec()
    erased = erase_extractor_pycode(spec)
    assert spec.source_code
    assert (erased.name, erased.source_code, erased.pickled) == ("greet", "", b"")
    operator = Spending.to_spec().pipelines[0].operator
    assert erase_operator_pycode(operator) == operator


@pytest.mark.spec("featuresets:12:1")
def test_a_wrong_definition_is_refused_before_any_client_sees_it() -> None:
    with pytest.raises(TypeError, match="x"):

        @featureset
        class Wrong:
            x: int = 3  # type: ignore[assignment]


def test_extractors_can_be_called_directly() -> None:
    ts = pd.Series(pd.to_datetime(["2024-05-01"], utc=True))
    assert Buyer.greet(Buyer, ts, pd.Series(["Ann"])).name == "Buyer.greeting"
    assert Request.user.fqn() == "Request.user"
