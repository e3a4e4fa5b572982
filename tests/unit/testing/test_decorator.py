"""`mock` as tests use it."""

# mypy: disable-error-code="no-untyped-def, attr-defined, arg-type, list-item, call-arg"

import inspect
import unittest
from typing import Any

import pytest

from caraway.errors import DefinitionTypeError, InvalidInputError, UnavailableError
from caraway.graph.runtime import lookup_provider, secret_provider
from caraway.testing import MockClient, log, mock
from tests.unit.testing.shop import T0, Orders, Users, orders


@pytest.fixture
def number() -> int:
    return 7


@pytest.mark.parametrize("letter", ["a", "b"])
@mock
def test_fixtures_and_parameters_come_beside_the_client(client: MockClient, letter: str, number: int) -> None:
    assert isinstance(client, MockClient)
    assert (letter in "ab", number) == (True, 7)


class TestMethods(unittest.TestCase):
    @mock
    def test_a_method_of_unittest(self, client: MockClient) -> None:
        assert client.branch() == "main"


class TestPlain:
    @mock
    def test_a_method_of_pytest(self, number: int, client: MockClient) -> None:
        assert (number, client.branch()) == (7, "main")


def test_name_signature_and_result_are_those_of_the_function() -> None:
    @mock
    def compute(client: Any, a: int, *, b: int = 2) -> Any:
        """Text."""
        return a + b, client.branch()

    assert (compute.__name__, compute.__doc__) == ("compute", "Text.")
    assert str(inspect.signature(compute)) == "(a: int, *, b: int = 2) -> Any"
    assert compute(a=1, b=5) == (6, "main")  # type: ignore[no-untyped-call]


def test_a_class_gets_the_client_at_its_construction() -> None:
    @mock
    class Scenario:
        def __init__(self, name: str, client: MockClient) -> None:
            self.name, self.client = name, client

    made = Scenario("x")
    assert (made.name, made.client.branch()) == ("x", "main")


def test_nothing_is_left_of_a_test() -> None:
    before = lookup_provider.get(), secret_provider.get()

    @mock
    def run(client: MockClient) -> None:
        client.commit("x", [Users])
        assert lookup_provider.get() is not before[0]

    run()
    assert (lookup_provider.get(), secret_provider.get()) == before


def test_what_needs_data_on_a_server_is_not_run() -> None:
    @mock
    def test_data_integration_of_orders(client: MockClient) -> None:
        raise AssertionError

    assert test_data_integration_of_orders() is True


def test_a_test_runs_again_on_a_server_if_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    @mock
    def run(client: Any) -> None:
        seen.append(client.is_integration_client())

    monkeypatch.setenv("USE_INT_CLIENT", "1")
    monkeypatch.delenv("CARAWAY_URL", raising=False)
    with pytest.raises(UnavailableError, match="CARAWAY_URL"):
        run()  # type: ignore[no-untyped-call]
    monkeypatch.setenv("CARAWAY_URL", "http://caraway.test")
    run()  # type: ignore[no-untyped-call]
    assert seen == [False, False, True]


def test_logging_to_a_dataset_needs_a_client_that_has_it() -> None:
    with pytest.raises(InvalidInputError, match=r"commit dataset Orders"):
        log(Orders, orders((1, 1.0, T0)))
    client = MockClient()
    client.commit("x", [Users])
    with pytest.raises(InvalidInputError, match=r"Orders.*commit"):
        log(Orders, orders((1, 1.0, T0)))
    with pytest.raises(DefinitionTypeError, match="3"):
        log(3, orders((1, 1.0, T0)))
