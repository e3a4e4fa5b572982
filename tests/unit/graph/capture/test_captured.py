from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from caraway.graph.capture.includes import includes
from caraway.graph.capture.shipping import python_function, source_with_includes
from caraway.graph.functions import PythonFunction

RATES = {"eur": 1.0, "usd": 1.1}


def scaled(factor: Any) -> Callable[[Any], Any]:
    return lambda value: value * factor


def converted(value: float) -> float:
    return value * RATES["usd"]


def twice_converted(value: float) -> float:
    return converted(converted(value))


def function(of: Callable[..., Any]) -> PythonFunction:
    return python_function("test", of)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        (1, 1.0),
        ("a", "b"),
        ([1, {"a": (2,)}], [1, {"a": (3,)}]),
        (list(range(1000)), list(range(1001))),
        (np.arange(3), np.arange(4)),
        ({1, 2}, {1, 3}),
    ],
)
def test_functions_over_other_values_are_other_functions(one: object, other: object) -> None:
    assert function(scaled(one)) != function(scaled(other))
    assert function(scaled(one)) == function(scaled(one))
    assert source_with_includes(scaled(one)) != source_with_includes(scaled(other))


def test_what_a_function_uses_of_its_module_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = function(twice_converted)
    assert any("value * RATES" in text and "RATES = {'eur': 1.0, 'usd': 1.1}" in text for text in before.includes)
    monkeypatch.setitem(RATES, "usd", 1.2)
    assert function(twice_converted) != before


def test_defaults_and_what_is_within_count() -> None:
    def outer(factor: int) -> Callable[[Any], Any]:
        def rate(value: float, by: int = factor) -> float:
            return sum(converted(v) for v in (value,)) * by

        return rate

    assert function(outer(1)) != function(outer(2))
    assert any("RATES" in text for text in function(outer(1)).includes)


def test_installed_functions_and_objects_are_told_by_the_text_alone() -> None:
    def draw(size: int) -> object:
        return np.zeros(size), pytest

    assert function(draw).includes == ()


def test_a_function_may_name_itself() -> None:
    @includes(converted)
    def down(value: int) -> int:
        return down(value - 1) if value else 0

    assert "converted" in function(down).includes[0]
