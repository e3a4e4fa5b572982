"""Tests that a traced function has the function's results, and that functions that can't be traced aren't."""

import random
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caraway.compute.reference.operators.functions import assign_call, filter_call
from caraway.dtypes.types import BOOL, FLOAT, INT, STRING, BetweenType, DataType, optional
from caraway.expr.nodes import Node
from caraway.expr.polars.compiler import compile_as
from caraway.expr.polars.values import from_polars, to_polars
from caraway.expr.printer import print_node
from caraway.graph.capture.shipping import python_function
from caraway.graph.functions import PythonFunction
from caraway.graph.operators import AssignFunction, FilterFunction, Input
from caraway.graph.schemas import Schema
from caraway.graph.tracing.frames import trace_column, trace_filter
from tests.unit.graph.tracing.functions import COLUMNS, of, rows_of

SCHEMA = Schema(keys={}, values={n: t for n, t in COLUMNS.items() if n != "at"}, timestamp="at")


def made(text: str) -> Callable[[Any], Any]:
    found = eval(f"lambda df: {text}", {})  # noqa: S307 (our own text)
    assert isinstance(found, FunctionType)
    return found


def computed(node: Node, dtype: DataType, rows: Mapping[str, list[Any]]) -> list[object]:
    frame = pl.DataFrame([to_polars(name, values, COLUMNS[name]) for name, values in rows.items()])
    return from_polars(frame.select(compile_as(node, dtype, COLUMNS).alias("$"))["$"], dtype)


def shipped(function: Callable[..., Any]) -> PythonFunction:
    return python_function("test", function)


def spelled(values: Sequence[object]) -> list[str]:
    return [repr(value) for value in values]


# Ints may be declared as floats.
@pytest.mark.parametrize(("kind", "declared"), [*((t, t) for t in (INT, FLOAT, BOOL, STRING)), (INT, FLOAT)], ids=str)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_a_traced_column_is_what_the_function_gives(
    kind: DataType, declared: DataType, data: st.DataObject, seed: int
) -> None:
    function, rows = made(data.draw(of(kind, 3))), rows_of(seed)
    dtype = optional(declared)
    node = trace_column(function, COLUMNS, dtype)
    assert node is not None
    step = AssignFunction(of=Input(dataset=""), column="x", dtype=dtype, function=shipped(function))
    assert spelled(computed(node, dtype, rows)) == spelled(assign_call(step, SCHEMA)(rows, 25)), print_node(node)


@given(text=of(BOOL, 3), seed=st.integers(0, 2**32))
@example('(df["f"] < df["j"])', 0)
def test_a_traced_filter_keeps_what_the_function_keeps(text: str, seed: int) -> None:
    function, rows = made(text), rows_of(seed)
    node = trace_filter(function, COLUMNS)
    assert node is not None
    step = FilterFunction(of=Input(dataset=""), function=shipped(function))
    assert computed(node, BOOL, rows) == filter_call(step, SCHEMA)(rows, 25)


LIMIT = 3
LIMITS = [3]


def helper(column: Any) -> Any:
    return column + 1


def with_default(df: Any, by: int = 2) -> Any:
    scaled = df.i * by
    return scaled + LIMIT


def caught(df: Any) -> Any:
    try:
        wanted = df["i"].clip(0, 3)
    except:  # noqa: E722 (what a user may write)
        wanted = df["i"]
    return wanted


def in_place(df: Any) -> Any:
    column = df["i"]
    column += 1
    return column + df["i"]


def test_a_function_may_have_names_constants_and_defaults() -> None:
    by = 4
    traced = trace_column(with_default, COLUMNS, INT)
    assert print_node(traced) == '((col("i") * 2) + 3)'  # type: ignore[arg-type]
    assert trace_column(lambda df: df["i"] * by, COLUMNS, INT) is not None


@pytest.mark.parametrize(
    "function",
    [
        lambda df: df["i"] if (df["i"] > 0).any() else df["j"],
        lambda df: df["i"] and df["j"],
        lambda df: df["i"] // 2,
        lambda df: df["i"] % 2,
        lambda df: df["i"] ** 2,
        lambda df: abs(df["i"]),
        lambda df: np.maximum(df["i"], 0),
        lambda df: np.int64(2) * df["i"],
        lambda df: df["i"].astype("Int64"),
        lambda df: df["i"].map(lambda x: x + 1),
        lambda df: [x for x in df["i"]],  # noqa: C416 (what a user may write)
        lambda df: df["i"] + helper(df["i"]),
        lambda df: df["i"] + random.randrange(3),
        lambda df: df["i"] + LIMITS[0],
        lambda df: df["i"] + len(df),
        lambda df: df["i"] if isinstance(df, pl.DataFrame) else df["j"],
        lambda df: df["i"] + 2**63,
        lambda df: df["i"] + True,
        lambda df: df["i"] + df["b"],
        lambda df: df["j"].fillna(1.5),
        lambda df: df["j"].fillna(df["i"]),
        lambda df: df["i"] + None,
        lambda df: df["nothing"],
        lambda df: df[["i"]],
        lambda df: df[df["b"]]["i"],
        lambda df: df.size + df["i"],
        lambda df: df["l"],
        lambda df: df["at"],
        lambda df: df["i"].sum(),
        lambda df: df["i"][0] + df["i"],
        lambda df: 1,
        lambda df: df,
        lambda df: None,
        lambda df: df["f"],
        lambda df: df["s"].str.len,
        caught,
        in_place,
        len,
    ],
)
def test_what_cannot_be_recorded_stays_a_function(function: Callable[[Any], Any]) -> None:
    assert trace_column(function, COLUMNS, optional(INT)) is None


@pytest.mark.parametrize(
    "function",
    [
        lambda df: df["i"],
        lambda df: df["s"].str.contains("a.c"),
        lambda df: df["s"] > 1,
        lambda df: df["b"] > df["c"],
        lambda df: df["b"] ^ df["c"],
        lambda df: df["b"] & 1,
        lambda df: ~df["i"],
        lambda df: df["i"].isin([1]),
        lambda df: 0 < df["i"] < 3,
        lambda df: df["f"] == float("inf"),
    ],
)
def test_a_filter_that_cannot_be_recorded_stays_a_function(function: Callable[[Any], Any]) -> None:
    assert trace_filter(function, COLUMNS) is None


def test_a_function_that_grows_too_large_stays_one() -> None:
    def doubled(df: Any) -> Any:
        column = df["i"]
        for _ in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10):
            column = column + column
        return column

    assert trace_column(doubled, COLUMNS, INT) is None


def test_other_types_than_the_declared_one_stay_functions() -> None:
    assert trace_column(made('df["i"]'), COLUMNS, STRING) is None
    assert trace_column(made('df["i"]'), COLUMNS, BetweenType(INT, 0, 3)) is None
    assert trace_column(made('df["b"]'), COLUMNS, INT) is None
