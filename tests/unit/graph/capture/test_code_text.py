"""Tests of the text of functions, in all layouts."""

import subprocess
import sys
from typing import Any

import pytest

from caraway.graph.capture.code_text import code_text, source_text


def given(*functions: Any) -> tuple[Any, ...]:
    return functions


ONE_LINE = given(lambda a: a + 1, lambda b: b + 2, lambda: "é" + "x", lambda c: (lambda d: d)(c))  # noqa: PLC3002 (one in another)
# fmt: off
SPREAD = given(
    lambda rows:
        rows
        .head(),
    (lambda x, y=lambda z: z + 1:
     y(x)), lambda e: {
        "a": e,
    },
)
# fmt: on


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (ONE_LINE[0], "lambda a: a + 1"),
        (ONE_LINE[1], "lambda b: b + 2"),
        (ONE_LINE[2], 'lambda: "é" + "x"'),
        (ONE_LINE[3], "lambda c: (lambda d: d)(c)"),
        (SPREAD[0], "lambda rows:\n        rows\n        .head()"),
        (SPREAD[1], "lambda x, y=lambda z: z + 1:\n     y(x)"),
        (SPREAD[1].__defaults__[0], "lambda z: z + 1"),
        (SPREAD[2], 'lambda e: {\n        "a": e,\n    }'),
    ],
)
def test_the_text_of_a_lambda_is_the_lambda_alone(function: Any, text: str) -> None:
    assert source_text(function) == code_text(function) == text


class Callable:
    def __call__(self, frame: Any) -> Any:
        return frame


def test_the_text_of_other_callables() -> None:
    assert source_text(given).startswith("def given(")
    assert source_text(Callable()).startswith("class Callable:")
    assert code_text(len) == "<builtins len>"


PROGRAM = """
def inner(x):
    return x in {"a", "b", "c", "d"} and (lambda y: y)(x)
"""


def compiled(text: str) -> Any:
    names: dict[str, Any] = {}
    exec(compile(text, "<nowhere>", "exec"), names)  # noqa: S102 (a function without a file)
    return names["inner"]


@pytest.mark.slow
def test_a_function_without_a_text_is_told_by_what_it_does() -> None:
    here = compiled(PROGRAM)
    assert source_text(here) == ""
    assert code_text(here).startswith("<function inner ")
    assert code_text(here) == code_text(compiled(PROGRAM))
    assert code_text(here) != code_text(compiled(PROGRAM.replace('"d"', '"e"')))
    program = (
        f"from caraway.graph.capture.code_text import code_text\nnames = {{}}\n"
        f"exec(compile({PROGRAM!r}, '<nowhere>', 'exec'), names)\nprint(code_text(names['inner']))"
    )
    other = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert other.strip() == code_text(here)
