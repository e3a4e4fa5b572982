# Checkers see classes where decorators make datasets and featuresets, and wrong arguments are tested here.
# mypy: disable-error-code="arg-type, attr-defined, call-arg, comparison-overlap, misc, operator, redundant-expr"
# mypy: no-warn-unreachable
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Optional

import pandas as pd
import pytest

from caraway.dtypes import Decimal, between, oneof, regex
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.expr import EvalContext, Expr, InvalidExprException, TimeUnit, TypedExpr, col, lit, now, when
from caraway.expr.inference import infer_nullable
from caraway.expr.nodes import NODE_TYPES
from caraway.expr.printer import print_node
from caraway.expr.references import columns_of

SCHEMA: dict[str, Any] = {
    "i": int,
    "oi": Optional[int],
    "f": float,
    "of": Optional[float],
    "b": bool,
    "ob": Optional[bool],
    "s": str,
    "os": Optional[str],
    "t": datetime,
    "ot": Optional[datetime],
    "d": date,
    "l": list[int],
    "m": Decimal[2],
    "small": between(int, 0, 9),
    "ratio": between(float, 0, 1),
    "size": oneof(str, ["s", "m"]),
    "code": regex("[a-z]+"),
}


@pytest.mark.parametrize(
    ("expr", "dtype"),
    [
        # Spec 9.1.
        (col("i") + 1, int),
        (col("i") - col("f"), float),
        (2 * col("of"), Optional[float]),
        (col("i") / 2, float),
        (col("oi") / 2, Optional[float]),
        (col("i") // 2, int),
        (1.5 % col("i"), float),
        (-col("oi"), Optional[int]),
        (col("i") + None, Optional[int]),
        (col("small") + 1, int),
        (col("ratio") * 2, float),
        # Spec 9.2.
        (col("i") == col("f"), bool),
        (col("i") != None, Optional[bool]),  # noqa: E711 (an expression)
        (col("s") == "a", bool),
        (col("size") == col("s"), bool),
        (col("l") == col("l"), bool),
        (col("m") == col("m"), bool),
        (col("i") < col("of"), Optional[bool]),
        (col("t") < col("t"), bool),
        (col("b") & col("ob"), Optional[bool]),
        (True | col("b"), bool),
        (~col("b"), bool),
        (col("oi").isnull(), bool),  # noqa: PD003 (our isnull)
        # Spec 9.4.
        (when(col("b")).then(1).otherwise(2.5), float),
        (when(col("ob")).then(1), Optional[int]),
        (when(col("b")).then(1).when(col("b")).then(None).otherwise(3), Optional[int]),
        (col("oi").fillnull(0), int),
        (col("oi").fillnull(1.5), float),
        (col("oi").fillnull(col("of")), Optional[float]),
        (col("i").fillnull(0), int),
        # Spec 12.
        (col("f").ceil(), int),
        (col("of").floor(), Optional[int]),
        (col("f").round(), int),
        (col("i").round(2), float),
        (col("i").abs(), int),
        (col("i").num.sqrt(), float),
        (col("of").num.is_nan(), Optional[bool]),
        (col("i").num.to_string().len(), int),
        (col("os").str.lower().upper().len(), Optional[int]),
        (col("code").str.concat(col("size")), str),
        (col("s").str.contains(col("os")), Optional[bool]),
        (col("s").str.startswith("a") & col("s").str.endswith("b"), bool),
        (col("ot").dt.year, Optional[int]),
        (col("t").dt.with_tz("Asia/Tokyo").hour, int),
        (col("t").dt.parts("WEEK", None), int),
        (col("t").dt.since(col("ot"), unit="day"), Optional[int]),
        (now().dt.since_epoch(TimeUnit.MILLISECOND), int),
        # Spec 11.
        (lit(3, float), float),
        (lit(True), bool),  # noqa: FBT003
        (lit(date(2024, 1, 1), Optional[date]), date),
        # A bare column keeps its restriction.
        (col("small"), between(int, 0, 9)),
    ],
    ids=str,
)
def test_types(expr: Expr, dtype: Any) -> None:
    assert expr.typeof(SCHEMA) == dtype


@pytest.mark.parametrize(
    ("expr", "facts"),
    [
        (col("gone"), ["gone", "oi"]),
        (col("s") + "a", ["+", "str", 'col("s")']),
        (col("t") - col("t"), ["-", "datetime"]),
        (col("m") + 1, ["+", "Decimal[2]"]),
        (col("b") + 1, ["+", "bool"]),
        (lit(None) + None, ["null"]),
        (col("i") == "a", ["==", "int", "str"]),
        (col("t") == col("d"), ["==", "datetime", "date"]),
        (col("b") < col("b"), ["<", "bool"]),
        (col("i") & col("b"), ["and", "int"]),
        (~col("i"), ["~", "int"]),
        (-col("s"), ["-", "str"]),
        (when(col("i")).then(1), ["when", "int", "bool"]),
        (when(col("b")).then(1).otherwise("a"), ["common", "int", "str"]),
        (col("oi").fillnull("a"), ["Optional[int]", "str"]),
        (col("s").abs(), ["abs", "str"]),
        (col("m").round(1), ["round", "Decimal[2]"]),
        (col("i").str.len(), ["len", "int"]),
        (col("s").str.contains(1), ["contains", "int"]),
        (col("d").dt.year, ["year", "date"]),
        (col("t").dt.since(col("d")), ["since", "date"]),
        (col("t").dt.since_epoch("month"), ["month"]),
        (col("t").dt.with_tz("+05:30").hour, ["+05:30", "Europe/Paris"]),
        (lit(None), ["null"]),
    ],
    ids=str,
)
def test_type_errors_name_operation_types_and_expression(expr: Expr, facts: list[str]) -> None:
    with pytest.raises(DefinitionError) as caught:
        expr.typeof(SCHEMA)
    assert all(fact in str(caught.value) for fact in facts), str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        # Spec 14, phase "build".
        (lambda: bool(col("i")), InvalidExprException),
        (lambda: col("i") and col("b"), InvalidExprException),
        (lambda: 1 < col("i") < 3, InvalidExprException),
        (lambda: 1 in col("l"), InvalidExprException),
        (lambda: col("i") in [col("b"), col("i")], InvalidExprException),
        (lambda: col("i") ^ 1, InvalidExprException),
        (lambda: 1 ^ col("i"), InvalidExprException),
        (lambda: col(3), InvalidExprException),
        (lambda: col("i").round(-1), InvalidExprException),
        (lambda: col("i").round(1.5), InvalidExprException),
        (lambda: col("i").num.round(True), InvalidExprException),  # noqa: FBT003
        (lambda: col("l")[0], InvalidExprException),
        (lambda: when(col("b")).astype(int), InvalidExprException),
        (lambda: when(col("b")).typeof({}), InvalidExprException),
        (lambda: col("i") + len, DefinitionTypeError),
        (lambda: col("i") + col("i").astype(int), DefinitionTypeError),
        (lambda: col("i") + [1], DefinitionTypeError),  # noqa: RUF005 (an expression)
        (lambda: lit(datetime(2024, 1, 1)), DefinitionTypeError),  # noqa: DTZ001
        (lambda: lit(3.5, int), DefinitionError),
        (lambda: lit(3.0, int), DefinitionError),
        (lambda: lit(2**63), DefinitionError),
        (lambda: lit("x", datetime), DefinitionError),
        (lambda: col("t").dt.parts("quarter"), DefinitionError),
        (lambda: col("t").dt.since(col("t"), "days"), DefinitionError),
        (lambda: col("i") ** 2, TypeError),
        (lambda: +col("i"), TypeError),
        (lambda: when(col("b")).otherwise(1), AttributeError),
        (lambda: col("s").lower(), AttributeError),
        (lambda: col("s").str.strip(), AttributeError),
        (lambda: col("i").astype(object), DefinitionTypeError),
        # Of the API, but not built yet.
        (lambda: col("l").list.len(), DefinitionError),
        (lambda: col("l").dict, DefinitionError),
        (lambda: col("l").struct, DefinitionError),
        (lambda: col("i").num.pow(2), DefinitionError),
        (lambda: col("s").str.split(","), DefinitionError),
        (lambda: col("t").dt.strftime("%Y"), DefinitionError),
    ],
)
def test_what_cannot_be_built(wrong: Callable[[], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        wrong()


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        # Spec 16.1.
        (col("x"), 'col("x")'),
        (lit(3), "3"),
        (lit("a"), '"a"'),
        (lit(True), "true"),  # noqa: FBT003
        (lit(None), "null"),
        ((col("x") + 1) & ~col("y"), '((col("x") + 1) and ~(col("y")))'),
        (-col("x") | True, '(-(col("x")) or true)'),
        (col("x").isnull(), 'IS_NULL(col("x"))'),  # noqa: PD003 (our isnull)
        (col("x").fillnull(0), 'FILL_NULL(col("x"), 0)'),
        (
            when(col("p")).then(1).when(col("q")).then(2).otherwise(3),
            'WHEN col("p") THEN 1 WHEN col("q") THEN 2 ELSE 3',
        ),
        (when(col("p")).then(1), 'WHEN col("p") THEN 1'),
        (col("x").round(2), 'ROUND(col("x"), 2)'),
        (col("x").num.is_nan(), 'IS_NAN(col("x"))'),
        (col("x").str.lower(), 'LOWER(col("x"))'),
        (col("x").str.contains("a"), 'CONTAINS(col("x"), "a")'),
        (col("x").str.concat("a"), 'col("x") + "a"'),
        (col("x").dt.year, 'DATEPART(col("x"), TimeUnit.YEAR)'),
        (col("x").dt.since(col("y"), "day"), 'SINCE(col("x"), col("y"), unit=TimeUnit.DAY)'),
        (col("x").dt.since_epoch(), 'SINCE_EPOCH(col("x"), unit=TimeUnit.SECOND)'),
        (now(), "NOW()"),
    ],
)
def test_printed_forms(expr: Expr, text: str) -> None:
    assert str(expr) == text


@pytest.mark.parametrize("node_type", NODE_TYPES)
def test_every_node_is_printed_and_typed(node_type: type) -> None:
    for function in (print_node, infer_nullable):
        assert function.dispatch(node_type) is not function.dispatch(object)


def test_steps_of_when_share_nothing() -> None:
    first = when(col("a")).then(1)
    assert (str(first.otherwise(2)), str(first.when(col("b")).then(3)), str(first)) == (
        'WHEN col("a") THEN 1 ELSE 2',
        'WHEN col("a") THEN 1 WHEN col("b") THEN 3',
        'WHEN col("a") THEN 1',
    )


def test_references_in_order_and_once() -> None:
    expr = when(col("p").str.startswith(col("q"))).then(col("b") + col("a")).otherwise(col("p").str.len())
    assert columns_of(expr.node) == ("p", "q", "b", "a")


def test_a_typed_expression_is_finished() -> None:
    typed = col("i").astype(Optional[float])
    assert isinstance(typed, TypedExpr)
    assert typed.dtype == Optional[float]
    assert not hasattr(typed, "num")
    assert len({col("a"), col("a")}) == 2


@pytest.mark.parametrize(
    ("expr", "dtype", "fits"),
    [
        # Spec 9.3.
        (col("i"), float, True),
        (col("i"), Optional[float], True),
        (col("oi"), int, False),
        (col("f"), int, False),
        (col("i"), between(int, 0, 1), True),
        (col("i"), oneof(int, [1]), True),
        (col("small"), oneof(int, [1]), True),
        (col("small"), Optional[int], True),
        (col("small"), float, False),
        (col("ratio"), Optional[float], True),
        (col("s"), regex("a"), True),
        (col("code"), Optional[str], True),
        (col("size"), str, True),
        (lit(None), Optional[int], True),
        (lit(None), int, False),
        (col("b"), int, False),
        (col("l"), Optional[list[int]], True),
        (col("l"), list[float], False),
        (col("m"), Decimal[3], False),
    ],
)
def test_matching(expr: Expr, dtype: Any, fits: bool) -> None:  # noqa: FBT001
    assert expr.matches_type(dtype, SCHEMA) is fits


FRAME = pd.DataFrame({"i": ["1", "2"], "of": [0.5, None], "t": ["2024-01-01", "2024-01-02T00:00:01"], "x": [0, 0]})
FRAME_SCHEMA = {"i": int, "of": Optional[float], "t": datetime}


def test_eval() -> None:
    doubled = (col("i") * 2).eval(FRAME, FRAME_SCHEMA)
    assert (doubled.tolist(), doubled.dtype, doubled.name) == ([2, 4], "int64", None)
    assert col("of").eval(FRAME, FRAME_SCHEMA).tolist() == [0.5, pd.NA]
    assert col("of").eval(FRAME, FRAME_SCHEMA, parse=False).dtype == "Float64"
    assert lit(7).eval(pd.DataFrame(index=range(2)), {}).tolist() == [7, 7]
    assert col("i").eval(FRAME.head(0), FRAME_SCHEMA).tolist() == []
    assert lit(None).eval(FRAME, {}, output_dtype=Optional[int]).tolist() == [pd.NA, pd.NA]
    assert col("i").eval(FRAME, FRAME_SCHEMA, output_dtype=float).dtype == "float64"
    assert str(col("t").eval(FRAME, FRAME_SCHEMA).dtype) == "datetime64[ns, UTC]"
    day = now().dt.day.eval(FRAME, FRAME_SCHEMA, context=EvalContext(now_col_name="t"))
    assert day.tolist() == [1, 2]
    assert FRAME["i"].tolist() == ["1", "2"]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: col("i").eval(FRAME, {"i": int, "gone": int}), InvalidExprException),
        (lambda: col("i").eval(FRAME), TypeError),
        (lambda: col("of").eval(FRAME, {"of": float}), ValueError),
        (lambda: col("of").eval(FRAME, FRAME_SCHEMA, output_dtype=float), ValueError),
        (lambda: col("i").eval(FRAME, FRAME_SCHEMA, output_dtype=between(int, 5, 9)), ValueError),
        (lambda: (col("i") // 0).eval(FRAME, FRAME_SCHEMA), ValueError),
        (lambda: lit(None).eval(FRAME, {}), ValueError),
    ],
)
def test_eval_refuses(wrong: Callable[[], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        wrong()
