# The tests pass wrong arguments, and restrictions in annotations.
# mypy: disable-error-code="attr-defined, call-arg, comparison-overlap, misc, type-arg, valid-type"
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from typing import Any, Dict, List, Optional

import numpy as np
import pandas as pd
import polars as pl
import pytest

from caraway.dtypes import Decimal, Embedding, between, oneof, regex
from caraway.errors import DefinitionError, InvalidInputError
from caraway.expr import EvalContext, Expr, InvalidExprException, col, lit, now, repeat, var, when
from caraway.expr.expressions import types_of
from caraway.expr.polars.compiler import compile_expr
from caraway.expr.polars.values import to_polars
from tests.unit.expr.columns import Dot

FRAME = pd.DataFrame(
    {
        "i": ["1", "2"],
        "of": [0.5, None],
        "t": ["2024-01-01", "2024-01-02T00:00:01"],
        "s": ["a", "b"],
        "x": [0, 0],
    },
    index=[7, 8],
)
SCHEMA: dict[str, Any] = {"i": int, "of": Optional[float], "t": datetime, "s": str}


def values(expr: Expr, **more: Any) -> list[Any]:
    return expr.eval(FRAME, SCHEMA, **more).tolist()


@pytest.mark.spec("types:13b:1", "types:13b:2", "types:13b:5", "types:13:3", "types:8.1:6")
def test_columns_are_cast_and_the_frame_is_left_alone() -> None:
    doubled = (col("i") * 2).eval(FRAME, SCHEMA)
    assert (doubled.tolist(), doubled.dtype, doubled.name, list(doubled.index)) == ([2, 4], "int64", None, [0, 1])
    assert FRAME["i"].tolist() == ["1", "2"]


@pytest.mark.parametrize(
    ("dtype", "given", "expected"),
    [
        (int, ["1", 2.0, True], [1, 2, 1]),
        (float, [1, "1.5", True], [1.0, 1.5, 1.0]),
        (str, [1, 1.5, True], ["1", "1.5", "true"]),
        (Optional[int], [1.0, math.nan, None], [1, pd.NA, pd.NA]),
        (date, ["2024-01-02", date(2024, 1, 2)], [date(2024, 1, 2)] * 2),
        (Decimal[2], [1, "1.5", Number("2.25")], [Number("1.00"), Number("1.50"), Number("2.25")]),
        (bytes, [b"a", "b"], [b"a", b"b"]),
        (List[Optional[int]], [[1, None], []], [[1, pd.NA], []]),
        (Dict[str, int], [{"a": 1}, [("b", 2)]], [{"a": 1}, {"b": 2}]),
        (Embedding[2], [[1, 2], np.array([0.5, 1])], [[1.0, 2.0], [0.5, 1.0]]),
        (Dot, [{"x": 1}, Dot(2, 0.5)], [Dot(1, None), Dot(2, 0.5)]),
        (Optional[Dot], [None, {"x": 1, "y": 2}], [pd.NA, Dot(1, 2.0)]),
        (between(int, 0, 5), [5], [5]),
    ],
)
@pytest.mark.spec("types:13b:2", "types:13b:7")
def test_values_of_every_type_pass(dtype: Any, given: list[Any], expected: list[Any]) -> None:
    found = col("v").eval(pd.DataFrame({"v": pd.Series(given, dtype=object)}), {"v": dtype}).tolist()
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]


@pytest.mark.spec("types:13b:4")
def test_results_are_as_long_as_the_frame() -> None:
    assert values(lit(7)) == [7, 7]
    assert lit(7).eval(pd.DataFrame(index=range(3)), {}).tolist() == [7, 7, 7]
    assert lit(7).eval(pd.DataFrame(), {}).tolist() == []
    assert col("i").eval(FRAME.head(0), SCHEMA).tolist() == []


@pytest.mark.spec("types:13b:6", "types:8:3")
def test_a_declared_type_is_promoted_to_and_verified() -> None:
    assert col("i").eval(FRAME, SCHEMA, output_dtype=float).dtype == "float64"
    assert values(lit(None), output_dtype=Optional[int]) == [pd.NA, pd.NA]
    assert values(col("i"), output_dtype=between(int, 1, 2)) == [1, 2]
    assert values(col("s"), output_dtype=oneof(str, ["a", "b"])) == ["a", "b"]
    assert values(repeat(col("i"), 1), output_dtype=Optional[List[int]]) == [[1], [2]]
    with pytest.raises(InvalidInputError, match=r'col\("s"\), row 1: .*oneof.*"?b'):
        values(col("s"), output_dtype=oneof(str, ["a"]))
    with pytest.raises(InvalidInputError, match=r"row 0: .*regex"):
        values(col("s"), output_dtype=regex("b"))
    with pytest.raises(InvalidInputError, match=r"field x.*null"):
        Dot.expr(x=col("i") // 0, y=None).eval(FRAME, SCHEMA)
    with pytest.raises(InvalidInputError, match=r"element 0.*null"):
        repeat(col("i") // 0, 1).eval(FRAME, SCHEMA)


@pytest.mark.parametrize(
    ("expr", "dtype", "expected"),
    [
        (col("i"), "int64", [1, 2]),
        (col("i") / 2, "float64", [0.5, 1.0]),
        (col("i") > 1, "bool", [False, True]),
        (col("of"), "object", [0.5, pd.NA]),
        (col("s"), "object", ["a", "b"]),
        (repeat(col("s"), 2), "object", [["a", "a"], ["b", "b"]]),
        (Dot.expr(x=1, y=col("of")), "object", [Dot(1, 0.5), Dot(1, None)]),
        (lit(Number("1.5"), Decimal[2]), "object", [Number("1.50")] * 2),
        (lit(date(2024, 1, 1), date), "object", [date(2024, 1, 1)] * 2),
        (when(col("i") == 1).then(col("t")), "datetime64[ns, UTC]", [pd.Timestamp("2024-01-01", tz="UTC"), pd.NaT]),
    ],
)
@pytest.mark.spec("types:13b:7")
def test_python_objects(expr: Expr, dtype: str, expected: list[Any]) -> None:
    found = expr.eval(FRAME, SCHEMA)
    assert (str(found.dtype), found.tolist()) == (dtype, expected)


@pytest.mark.parametrize(
    ("expr", "dtype", "expected"),
    [
        (col("i"), "Int64", [1, 2]),
        (col("of"), "Float64", [0.5, pd.NA]),
        (col("i") > 1, "boolean", [False, True]),
        (col("s"), "string", ["a", "b"]),
        (col("t").dt.year, "Int64", [2024, 2024]),
        (repeat(col("i"), 1), "list<item: int64>[pyarrow]", [[1], [2]]),
        (
            Dot.expr(x=1, y=col("of")),
            "struct<x: int64, y: double>[pyarrow]",
            [{"x": 1, "y": 0.5}, {"x": 1, "y": None}],
        ),
        (lit({"a": 1}, Dict[str, int]), "map<string, int64>[pyarrow]", [[("a", 1)]] * 2),
        (lit([1.0, 2.0], Embedding[2]), "fixed_size_list<item: double>[2][pyarrow]", [[1.0, 2.0]] * 2),
        (lit(date(2024, 1, 1), date), "date32[day][pyarrow]", [date(2024, 1, 1)] * 2),
        (lit(Number("1.5"), Decimal[2]), "decimal128(28, 2)[pyarrow]", [Number("1.50")] * 2),
        (lit(b"a", bytes), "binary[pyarrow]", [b"a", b"a"]),
    ],
)
@pytest.mark.spec("types:13b:8")
def test_columnar_form(expr: Expr, dtype: str, expected: list[Any]) -> None:
    found = expr.eval(FRAME, SCHEMA, parse=False)
    assert (str(found.dtype), found.tolist()) == (dtype, expected)
    assert str(col("t").eval(FRAME, SCHEMA, parse=False).dtype) == "datetime64[ns, UTC]"


@pytest.mark.spec("types:13b:9", "types:11:5")
def test_now_is_one_instant_or_a_column() -> None:
    assert values(now().dt.day, context=EvalContext(now_col_name="t")) == [1, 2]
    assert values(now() == now()) == [True, True]
    assert set(values(now().since(lit(datetime.now(UTC), datetime), "minute"))) <= {0, 1}


@pytest.mark.spec("types:10.4:1", "types:10.4:2", "types:10.4:3", "types:2b:3")
def test_nan_is_null_outside_and_a_float_inside() -> None:
    frame = pd.DataFrame({"f": [math.nan, 4.0]})
    schema = {"f": Optional[float]}
    assert col("f").isnull().eval(frame, schema).tolist() == [True, False]  # noqa: PD003 (our isnull)
    with pytest.raises(InvalidInputError, match="column f, row 0"):
        col("f").eval(frame, {"f": float})
    root = (-col("f").fillnull(1.0)).num.sqrt()
    assert root.isnull().eval(frame, schema).tolist() == [False, False]  # noqa: PD003 (our isnull)
    assert root.is_nan().eval(frame, schema).tolist() == [True, True]
    assert root.fillnull(0).eval(frame, schema).tolist() == [pd.NA, pd.NA]
    assert root.typeof(schema) is float
    assert root.eval(frame, schema, parse=False).isna().all()


@pytest.mark.spec("types:10.4:4", "types:14:9")
def test_nan_has_no_int() -> None:
    with pytest.raises(InvalidInputError, match="null"):
        lit(math.nan).floor().eval(FRAME, SCHEMA)
    assert values(when(col("i") == 1).then(math.inf).floor()) == [pd.NA, pd.NA]


@pytest.mark.parametrize(
    ("wrong", "error", "facts"),
    [
        (lambda: col("i").eval(FRAME, {"i": int, "gone": int}), InvalidExprException, "gone"),
        (lambda: col("i").eval(FRAME), TypeError, "schema"),
        (lambda: col("of").eval(FRAME, {"of": float}), InvalidInputError, "column of, row 1: .*null"),
        (lambda: col("of").eval(FRAME, SCHEMA, output_dtype=float), DefinitionError, "Optional"),
        (lambda: col("i").eval(FRAME, SCHEMA, output_dtype=between(int, 5, 9)), InvalidInputError, "between"),
        (lambda: col("s").eval(FRAME, {"s": int}), InvalidInputError, "column s, row 0: expected int"),
        (lambda: (col("i") // 0).eval(FRAME, SCHEMA), InvalidInputError, "//.*null"),
        (lambda: (col("i") % 0).eval(FRAME, SCHEMA), InvalidInputError, "%.*null"),
        (lambda: lit(None).eval(FRAME, {}), DefinitionError, "output_dtype"),
        (lambda: repeat(1, col("i") - 5).eval(FRAME, SCHEMA), InvalidInputError, r"REPEAT.*negative\Z"),
        (lambda: lit(2).num.pow(-col("i")).eval(FRAME, SCHEMA), InvalidInputError, r"POW.*a float\Z"),
        (lambda: col("s").str.strptime("%Y").eval(FRAME, SCHEMA), InvalidInputError, r"STRPTIME.*it does not match\Z"),
        (lambda: col("s").str.parse(int).eval(FRAME, SCHEMA), InvalidInputError, "PARSE"),
        (
            lambda: col("i").eval(FRAME, SCHEMA, context=EvalContext(now_col_name="i")),
            InvalidExprException,
            "now_col_name='i'",
        ),
        (
            lambda: repeat(col("i"), 1).list.map("v", var("v") // 0).eval(FRAME, SCHEMA),
            InvalidInputError,
            "element 0.*null",
        ),
    ],
)
@pytest.mark.spec("types:13b:1", "types:13b:3", "types:14:7", "types:14:9", "types:8:3", "types:11:7")
def test_what_cannot_be_evaluated(wrong: Callable[[], Any], error: type[Exception], facts: str) -> None:
    with pytest.raises(error, match=facts):
        wrong()


@pytest.mark.spec("types:17:7")
def test_scalars_are_computed_by_columns() -> None:
    """Check that no Python function is called for a row."""
    expr = when(col("i") * 2 > 3).then(col("s").str.lower().len()).otherwise(col("t").dt.year + col("of").fillnull(1))
    schema = types_of(SCHEMA)
    frame = pl.DataFrame([to_polars(name, [], dtype) for name, dtype in schema.items()])
    assert "python" not in frame.lazy().select(compile_expr(expr.node, schema)).explain().lower()
