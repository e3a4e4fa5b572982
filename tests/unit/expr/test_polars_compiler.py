import math
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from caraway.dtypes.types import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    DataType,
    DecimalType,
    EmbeddingType,
    ListType,
    MapType,
    StructType,
    base_type,
    optional,
)
from caraway.expr import Expr, col, lit, when
from caraway.expr.inference import infer
from caraway.expr.nodes import NODE_TYPES, Literal, Node
from caraway.expr.polars.compiler import compile_as, compile_expr
from caraway.expr.polars.scope import compile_node
from caraway.expr.polars.values import from_polars, polars_type, to_polars
from caraway.expr.references import columns_of
from tests.effort import examples
from tests.unit.expr.naive import evaluate
from tests.unit.expr.polars_results import ROW, same
from tests.unit.expr.typed_nodes import SCHEMA, any_expression, rows

NOW = 1_700_000_000_123_456
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


Rows = list[dict[str, Any]]


def compiled(node: Node, given_rows: Rows) -> tuple[list[Any], DataType]:
    dtype, names = infer(node, SCHEMA), columns_of(node)
    columns = [to_polars(name, [row[name] for row in given_rows], SCHEMA[name]) for name in names]
    # With a column of the frame beside it, polars repeats a constant for each row.
    frame = pl.DataFrame([pl.Series(ROW, range(len(given_rows)), dtype=pl.Int64), *columns])
    result = frame.with_columns(compile_expr(node, SCHEMA, now=NOW).alias("result"))["result"]
    assert result.dtype == polars_type(dtype)
    return from_polars(result, dtype), dtype


@st.composite
def cases(draw: st.DrawFn) -> tuple[Node, Rows]:
    """Draw an expression, and rows of the columns that it refers to."""
    node = draw(any_expression())
    return node, draw(st.lists(rows(columns_of(node)), min_size=1, max_size=4))


# On a developer's machine every run has other examples, so they add up.
@settings(max_examples=examples(300))
@given(case=cases())
@example(case=((col("i") // -1).node, [{"i": -(2**63)}]))
@example(case=((-col("i")).node, [{"i": -(2**63)}]))
@example(case=(col("s").str.lower().node, [{"s": "ΑΣ"}]))
@example(case=(col("t").dt.since_epoch("second").node, [{"t": -1}]))
@example(case=((col("f") / 10.0).node, [{"f": 14.0}] * 2))
@example(case=((col("f") // 0.1).node, [{"f": 1.1}] * 2))
@example(case=((col("f") % 0.1).node, [{"f": 1.1}] * 2))
@example(case=(col("i").num.sqrt().round(1).node, [{"i": 2}] * 2))
@example(case=((col("i").num.sqrt() / 0).node, [{"i": 2}] * 2))
@example(case=(col("lf").list.min().node, [{"lf": [-0.0]}]))
@example(case=((lit(None) & col("b")).node, [{"b": True}]))
@example(
    case=(
        when(lit("") == when(col("b")).then(col("s"))).then(lit(EPOCH, datetime)).node,
        [{"b": False, "s": "ΑΣ"}] * 2,
    )
)
@example(case=((lit(0).round(1).num.sqrt() == lit(0).fillnull(col("i"))).node, [{"i": 1}] * 2))
def test_polars_agrees_with_the_plain_evaluator(case: tuple[Node, Rows]) -> None:
    node, given_rows = case
    found, dtype = compiled(node, given_rows)
    expected = [evaluate(node, row, SCHEMA, NOW) for row in given_rows]
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert same(ours, theirs), (str(Expr(node)), dtype, ours, theirs)


@pytest.mark.parametrize("node_type", NODE_TYPES)
def test_every_node_is_compiled(node_type: type) -> None:
    assert compile_node.dispatch(node_type) is not compile_node.dispatch(object)


def test_a_declared_type_widens_ints() -> None:
    frame = pl.DataFrame({"i": [1]})
    assert frame.select(compile_as(col("i").node, FLOAT, {"i": INT})).to_series().to_list() == [1.0]
    null = Literal(value=None, dtype=None)
    assert frame.select(compile_as(null, optional(STRING), {"i": INT})).to_series().dtype == pl.String


WINDOW = StructType("W", (("begin", DATETIME), ("tags", MapType(DecimalType(2)))))


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (INT, [1, None]),
        (FLOAT, [1.5, None]),
        (BOOL, [True, None]),
        (STRING, ["a", None]),
        (BYTES, [b"a", None]),
        (DATETIME, [1_700_000_000_123_456, -1, None]),
        (DATE, [-1, 19_000, None]),
        (DecimalType(3), ["1.250", "-0.001", None]),
        (EmbeddingType(2), [[1.0, 2.0], None]),
        (ListType(optional(DATE)), [[1, None], [], None]),
        (MapType(INT), [{"a": 1}, {}, None]),
        (WINDOW, [[5, {"x": "1.20"}], None]),
        # Instants beyond Python's calendar, and NaN, which isn't null here.
        (ListType(DATETIME), [[2**62, -(2**62)]]),
        (ListType(optional(FLOAT)), [[math.inf, None, -0.0]]),
        (DecimalType(1), ["999999999999999999999999999.9", "-0.1"]),
    ],
)
def test_stored_values_pass_through_polars(dtype: DataType, values: list[Any]) -> None:
    series = to_polars("x", values, optional(dtype))
    assert series.dtype == polars_type(base_type(dtype))
    assert from_polars(series, dtype) == values
