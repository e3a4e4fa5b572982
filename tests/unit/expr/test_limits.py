"""Tests that no expression makes values of any size from a few bytes, in any way of evaluation."""

from typing import Any

import pytest

from caraway.dtypes.types import INT, STRING, DataType, ListType
from caraway.errors import DefinitionError, InvalidInputError
from caraway.expr import Expr, col, repeat, var, when
from caraway.expr.inference import infer
from caraway.expr.limits import MAX_CHARACTERS, MAX_REPEATED
from caraway.expr.scalars.compiler import compile_scalar
from tests.unit.expr.polars_results import results

SCHEMA: dict[str, DataType] = {"n": INT, "s": STRING, "l": ListType(INT)}
HALF = "é" * (MAX_CHARACTERS // 2)
TWICE = col("s").str.concat(col("s"))


def of_one(expr: Expr, row: dict[str, Any]) -> Any:
    scalar = compile_scalar(expr.node, infer(expr.node, SCHEMA), SCHEMA)
    assert scalar is not None
    return scalar(row)


def of_columns(expr: Expr, row: dict[str, Any]) -> Any:
    (found,) = results(expr, {"n": int, "s": str}, (row.get("n", 0), row.get("s", "")))
    return found


@pytest.mark.parametrize("evaluate", [of_one, of_columns])
def test_repeated_values_and_texts_have_a_largest_size(evaluate: Any) -> None:
    many = repeat(0, col("n"))
    assert len(evaluate(many, {"n": MAX_REPEATED})) == MAX_REPEATED
    assert len(evaluate(TWICE, {"s": HALF})) == MAX_CHARACTERS
    assert evaluate(TWICE, {"s": "x"}) == "xx"
    for count in (MAX_REPEATED + 1, 10**9, 2**63 - 1):
        with pytest.raises(InvalidInputError, match=f"the count is {count:,}, at most 10,000"):
            evaluate(many, {"n": count})
    with pytest.raises(InvalidInputError, match="the text has 1,000,002 characters, at most 1,000,000"):
        evaluate(TWICE, {"s": HALF + "x"})


@pytest.mark.parametrize("evaluate", [of_one, of_columns])
def test_a_choice_refuses_a_text_that_is_not_chosen(evaluate: Any) -> None:
    with pytest.raises(InvalidInputError, match="at most 1,000,000"):
        evaluate(when(col("n") > 0).then(TWICE).otherwise("x"), {"n": 0, "s": HALF + "x"})


@pytest.mark.parametrize(
    "expr",
    [
        repeat(repeat(0, 10_000), 10_000),
        repeat(repeat(0, 10), col("n")),
        repeat(0, 2_000).list.map("v", repeat(var("v"), 2_000)),
        col("l").list.map("v", repeat(repeat(var("v"), 2_000), 2_000)),
    ],
)
def test_repeats_in_each_other_have_small_constant_counts(expr: Expr) -> None:
    with pytest.raises(DefinitionError, match="constants whose product is at most 1,000,000"):
        infer(expr.node, SCHEMA)


def test_a_matrix_is_possible() -> None:
    assert of_one(repeat(repeat(0, 3), 2), {}) == [[0, 0, 0], [0, 0, 0]]
