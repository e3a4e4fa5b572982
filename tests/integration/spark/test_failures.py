"""Tests that the value of a row that fails on Spark is null, and that a second column is true."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from caraway.dataplane.streams.spark.codec import name
from caraway.dataplane.streams.spark.expressions import SparkScope, compile_with_failure
from caraway.dataplane.streams.spark.types import row_type
from caraway.dtypes.types import (
    DATETIME,
    FLOAT,
    INT,
    STRING,
    BetweenType,
    DataType,
    ListType,
    OneOfType,
    RegexType,
    StructType,
    optional,
)
from caraway.expr.nodes import (
    Binary,
    BinaryOp,
    ListMap,
    Literal,
    MakeStruct,
    Node,
    ParseJson,
    Ref,
    Repeat,
    Split,
    StringCall,
    StringFunction,
    Strptime,
    Var,
)

X = Ref(name="x")
DIVIDED = Binary(op=BinaryOp.FLOOR_DIV, left=X, right=X)
OVER = Binary(op=BinaryOp.FLOOR_DIV, left=Var(name="e"), right=Var(name="e"))
BOUNDED = StructType("Bounded", (("n", optional(BetweenType(INT, 0, 9))),))
DAYS = ListMap(
    operand=Split(operand=X, separator=","),
    variable="e",
    body=Strptime(operand=Var(name="e"), format="%Y-%m-%d"),
)

TWICE = StringCall(
    function=StringFunction.CONCAT,
    operand=StringCall(function=StringFunction.CONCAT, operand=X, args=(X,)),
    args=(Literal(value="", dtype=STRING),),
)

# Each case has an expression over x, its declared type, the values of x, and those of them that fail.
LISTS = ListType(INT)
CASES: list[tuple[Node, DataType, DataType, list[Any], list[bool]]] = [
    (DIVIDED, INT, INT, [1, 0], [False, True]),
    (DIVIDED, INT, optional(INT), [1, 0], [False, False]),
    (X, INT, BetweenType(INT, 0, 9), [-1, 0, 9, 10], [True, False, False, True]),
    (X, FLOAT, BetweenType(FLOAT, 0.0, 1.0, strict_min=True, strict_max=True), [0.0, 0.5, 1.0], [True, False, True]),
    (X, optional(STRING), optional(OneOfType(STRING, ("a", "b"))), ["a", "c", None], [False, True, False]),
    (X, STRING, RegexType("[ab]+|c"), ["ab", "cab", "c", "c\n"], [False, True, False, True]),
    (MakeStruct(dtype=BOUNDED, fields=(("n", X),)), optional(INT), BOUNDED, [3, None, 10], [False, False, True]),
    (
        ListMap(operand=X, variable="e", body=OVER),
        ListType(INT),
        ListType(INT),
        [[1, 2], [0], []],
        [False, True, False],
    ),
    (Strptime(operand=X, format="%Y"), optional(STRING), optional(DATETIME), ["2024", "x", None], [False, True, False]),
    (DAYS, STRING, ListType(DATETIME), ["2024-01-01", "2024-01-01,x", ""], [False, True, True]),
    (
        Repeat(value=X, by=X),
        INT,
        ListType(INT),
        [2, 0, -1, 10_000, 10_001, 10**9, 2**62],
        [False] * 2 + [True, False] + [True] * 3,
    ),
    (TWICE, STRING, STRING, ["x", "é" * 500_000, "é" * 500_001], [False, False, True]),
    (ParseJson(operand=X, dtype=optional(INT)), STRING, optional(INT), ["1", "null", "x"], [False, False, True]),
]


@pytest.mark.parametrize("case", CASES)
def test_failing_rows_are_null_and_told(
    case: tuple[Node, DataType, DataType, list[Any], list[bool]], spark: SparkSession
) -> None:
    node, of, declared, values, fails = case
    scope = SparkScope(types={"x": of}, columns={"x": name("x")})
    outcome = compile_with_failure(node, declared, scope)
    frame = spark.createDataFrame([(value,) for value in values], row_type([("x", of)])).coalesce(1)
    rows = frame.select(outcome.value.alias("value"), outcome.failed.alias("failed")).collect()
    assert [row.failed for row in rows] == fails
    assert all(row.value is None for row in rows if row.failed)
