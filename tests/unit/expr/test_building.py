# The tests pass wrong arguments, and expressions in place of values.
# mypy: disable-error-code="attr-defined, misc, operator, union-attr"
"""Tests of the surface of the API: names, operators, conversions, printed forms, visitors."""

import copy
import importlib
import pickle
import subprocess
import sys
from datetime import UTC, date
from datetime import datetime as clock
from decimal import Decimal as Number
from typing import Any, List, Optional

import numpy as np
import pytest
from hypothesis import given

from caraway.dtypes import Decimal
from caraway.errors import InvalidExprException
from caraway.expr import Expr, TimeUnit, TypedExpr, col, datetime, from_epoch, lit, make_struct, now, repeat, var, when
from caraway.expr.expr import make_expr
from caraway.expr.expr import zip as zip_lists
from caraway.expr.nodes import NODE_TYPES, Literal, Node
from caraway.expr.printer import PRINTERS, print_node
from caraway.expr.references import columns_of, walk
from caraway.expr.serializer import ExprSerializer
from caraway.expr.visitor import ExprPrinter, FetchReferences, Visitor
from caraway.graph.wire.messages import decode_expr
from tests.unit.expr.columns import Dot
from tests.unit.expr.typed_nodes import any_expression


def printed(expr: Expr) -> str:
    return ExprPrinter().print(expr)


RESTRICTIONS = "between oneof regex struct Window Embedding"
EXPR = "Expr InvalidExprException col lit when var now repeat from_epoch datetime make_struct"
SURFACE = [
    (
        "1:1",
        "caraway.dtypes",
        "Embedding Decimal oneof between regex struct Window Continuous Tumbling Hopping Session",
    ),
    ("1:2", "caraway.expr", EXPR),
    ("1:3", "caraway.expr.expr", f"{EXPR} zip TimeUnit TypedExpr EvalContext make_expr"),
    ("1:4", "caraway.expr.visitor", "Visitor ExprPrinter FetchReferences"),
    ("1:5", "caraway.expr.serializer", "ExprSerializer"),
    ("1:6", "caraway.lib.schema", f"{RESTRICTIONS} inputs outputs"),
]


@pytest.mark.parametrize(
    ("module", "names"),
    [pytest.param(module, names, marks=pytest.mark.spec(f"types:{row}")) for row, module, names in SURFACE],
)
def test_names(module: str, names: str) -> None:
    assert [name for name in names.split() if not hasattr(importlib.import_module(module), name)] == []


@pytest.mark.slow
def test_expressions_are_light() -> None:
    # The program doesn't run the package's own __init__, which imports the client.
    program = """
import sys, types
package = types.ModuleType("caraway")
package.__path__ = [{path!r}]
sys.modules["caraway"] = package
import caraway.expr, caraway.dtypes
print([name for name in ("polars", "google.protobuf", "pyspark") if name in sys.modules])
"""
    path = str(importlib.import_module("caraway").__path__[0])
    found = subprocess.run(
        [sys.executable, "-c", program.format(path=path)], check=True, capture_output=True, text=True
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (1 + col("x"), '(1 + col("x"))'),
        (1 - col("x"), '(1 - col("x"))'),
        (2.5 * col("x"), '(2.5 * col("x"))'),
        (1 / col("x"), '(1 / col("x"))'),
        (1 // col("x"), '(1 // col("x"))'),
        (None % col("x"), '(null % col("x"))'),
        (np.float64(1.5) + col("x"), '(1.5 + col("x"))'),
        (1 < col("x"), '(col("x") > 1)'),  # noqa: SIM300 (what is tested)
        ("a" >= col("x"), '(col("x") <= "a")'),  # noqa: SIM300 (what is tested)
        ("a" == col("x"), '(col("x") == "a")'),  # noqa: SIM300 (what is tested)
        (True & col("x"), '(true and col("x"))'),
        (False | col("x"), '(false or col("x"))'),
    ],
)
@pytest.mark.spec("types:10.1:1", "types:10.1:2", "types:10.1:3", "types:8:1")
def test_constants_stand_on_either_side(expr: Expr, text: str) -> None:
    assert printed(expr) == text


@pytest.mark.parametrize(
    ("value", "dtype", "stored"),
    [
        (Number("1.5"), Decimal[2], "1.50"),
        (clock(2024, 1, 1, tzinfo=UTC), clock, 1_704_067_200_000_000),
        (date(1970, 1, 2), date, 1),
        ([1, None], List[Optional[float]], [1.0, None]),
        (Dot(1, None), Dot, [1, None]),
        (3, Optional[float], 3.0),
        (float("inf"), float, float("inf")),
    ],
)
@pytest.mark.spec("types:11:2")
def test_typed_constants(value: Any, dtype: Any, stored: Any) -> None:
    node = lit(value, dtype).node
    assert isinstance(node, Literal)
    assert node.value == stored
    assert type(node.value) is type(stored)


@pytest.mark.spec("types:11:2", "types:10.4:2")
def test_nan_is_a_constant_and_no_null() -> None:
    assert lit(float("nan")).typeof() is lit(float("nan"), float).typeof() is float


PRINTED = [
    ("16.1:1", col("x"), 'col("x")'),
    ("16.1:1 11:6", var("x"), 'var("x")'),
    ("16.1:2", lit(3), "3"),
    ("16.1:2", lit(3.2), "3.2"),
    ("16.1:2", lit("a"), '"a"'),
    ("16.1:2", lit(True), "true"),
    ("16.1:2", lit(None), "null"),
    ("16.1:2", lit([1, 2], List[int]), "[1, 2]"),
    ("16.1:3", (col("x") + 1) & ~col("y"), '((col("x") + 1) and ~(col("y")))'),
    ("16.1:4", -col("x") | True, '(-(col("x")) or true)'),
    ("16.1:5", col("x").isnull(), 'IS_NULL(col("x"))'),
    ("16.1:5", col("x").fillnull(0), 'FILL_NULL(col("x"), 0)'),
    (
        "16.1:6",
        when(col("p")).then(1).when(col("q")).then(2).otherwise(3),
        'WHEN col("p") THEN 1 WHEN col("q") THEN 2 ELSE 3',
    ),
    ("16.1:6", when(col("p")).then(1), 'WHEN col("p") THEN 1'),
    ("16.1:7", col("x").abs().ceil().floor(), 'FLOOR(CEIL(ABS(col("x"))))'),
    ("16.1:7", col("x").num.sqrt().sin().cos().tan(), 'TAN(COS(SIN(SQRT(col("x")))))'),
    ("16.1:7", col("x").num.arcsin().arccos().arctan(), 'ATAN(ACOS(ASIN(col("x"))))'),
    ("16.1:7", col("x").num.to_string(), 'TO_STRING(col("x"))'),
    ("16.1:7", col("x").num.is_nan() | col("x").num.is_infinite(), '(IS_NAN(col("x")) or IS_INFINITE(col("x")))'),
    ("16.1:7", col("x").round(2), 'ROUND(col("x"), 2)'),
    ("16.1:7", col("x").num.pow(2), 'POW(col("x"), 2)'),
    ("16.1:7", col("x").num.log(base=10), 'LOG(col("x"), base=10)'),
    ("16.1:7", col("x").num.log(), 'LOG(col("x"), base=e)'),
    ("16.1:8", col("x").str.lower().upper().len(), 'LEN(UPPER(LOWER(col("x"))))'),
    ("16.1:8", col("x").str.contains("a"), 'CONTAINS(col("x"), "a")'),
    ("16.1:8", col("x").str.startswith("a"), 'STARTSWITH(col("x"), "a")'),
    ("16.1:8", col("x").str.endswith("a"), 'ENDSWITH(col("x"), "a")'),
    ("16.1:8", col("x").str.concat("a"), 'col("x") + "a"'),
    ("16.1:8", col("x").str.strptime("%Y", timezone="EST"), 'STRPTIME(col("x"), %Y, EST)'),
    ("16.1:8", col("x").str.parse(List[Dot]), 'PARSE(col("x"), List[Dot])'),
    ("16.1:8", col("x").str.json_extract("$.a"), 'JSON_EXTRACT(col("x"), $.a)'),
    ("16.1:8", col("x").str.split(","), 'SPLIT(col("x"), ",")'),
    ("16.1:9", col("x").dt.with_tz("EST").year, 'DATEPART(col("x"), TimeUnit.YEAR)'),
    ("16.1:9", col("x").dt.since(col("y"), "day"), 'SINCE(col("x"), col("y"), unit=TimeUnit.DAY)'),
    ("16.1:9", col("x").dt.since_epoch(), 'SINCE_EPOCH(col("x"), unit=TimeUnit.SECOND)'),
    ("16.1:9", col("x").dt.strftime("%Y"), 'STRFTIME(col("x"), %Y)'),
    ("16.1:9 11:10", from_epoch(col("x")), 'FROM_EPOCH(col("x"), unit=TimeUnit.SECOND)'),
    ("16.1:9 11:11", datetime(2024, 1, 2, 3, timezone="EST"), "DATETIME(2024, 1, 2, 3, 0, 0, 0, timezone=EST)"),
    ("16.1:10", col("x").list.len(), 'LEN(col("x"))'),
    ("16.1:10", col("x").list.contains(1), 'CONTAINS(col("x"), 1)'),
    ("16.1:10", col("x").list.at(0), 'col("x")[0]'),
    ("16.1:10", col("x").list.hasnull(), 'HAS_NULL(col("x"))'),
    ("16.1:10", col("x").list.map("v", var("v") + 1), 'LIST_MAP(col("x"), "v", (var("v") + 1))'),
    ("16.1:10", col("x").list.filter("v", var("v") > 1), 'LIST_FILTER(col("x"), "v", (var("v") > 1))'),
    ("16.1:10", col("x").list.sum() + col("x").list.mean(), '(LIST_SUM(col("x")) + LIST_MEAN(col("x")))'),
    ("16.1:10", col("x").list.min() + col("x").list.max(), '(LIST_MIN(col("x")) + LIST_MAX(col("x")))'),
    ("16.1:10", col("x").list.all() & col("x").list.any(), '(LIST_ALL(col("x")) and LIST_ANY(col("x")))'),
    ("16.1:11", col("x").dict.get("a"), 'col("x").dict.get("a")'),
    ("16.1:11", col("x").dict.get("a", 0), 'col("x").dict.get("a", 0)'),
    ("16.1:11", col("x").dict.len(), 'LEN(col("x"))'),
    ("16.1:11", col("x").dict.contains("a"), 'CONTAINS(col("x"), "a")'),
    ("16.1:12", col("x").struct.get("a").struct.get("b"), 'col("x").a.b'),
    ("16.1:12", make_struct({"x": 1, "y": col("f")}, Dot), 'STRUCT(x=1, y=col("f"))'),
    ("16.1:12", zip_lists(Dot, {"x": col("a"), "y": col("b")}), 'ZIP(Dot, x=col("a"), y=col("b"))'),
    ("16.1:12", repeat(1, col("x")), 'REPEAT(1, col("x"))'),
    ("16.1:12 11:5", now(), "NOW()"),
]


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        pytest.param(expr, text, marks=pytest.mark.spec(*[f"types:{row}" for row in rows.split()]))
        for rows, expr, text in PRINTED
    ],
)
@pytest.mark.spec("types:16.3:2")
def test_printed_forms(expr: Expr, text: str) -> None:
    assert printed(expr) == text


@pytest.mark.parametrize("node_type", NODE_TYPES)
def test_every_node_is_printed(node_type: type) -> None:
    assert node_type in PRINTERS


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (col("a") + col("b") * 2, 'col("a") + col("b") * 2'),
        (~col("a"), '~ col("a")'),
        (-col("a"), '- col("a")'),
        (col("a").isnull(), 'col("a") is null'),
        (col("a").fillnull(0), 'fillnull(col("a"), 0)'),
        (repeat(1, 2), "repeat(1, 2)"),
        (now(), "now()"),
        (var("x"), "var(x)"),
        (col("a")[0], 'col("a")[0]'),
        (col("a")["k"], 'col("a")["k"]'),
        (col("a").abs(), 'ABS(col("a"))'),
        (zip_lists(Dot, {"x": col("a"), "y": col("b")}), 'zip(Dot, x=col("a"), y=col("b"))'),
        ((col("a") + 1).astype(float), "col(\"a\") + 1.astype(<class 'float'>)"),
    ],
)
def test_light_forms(expr: Expr, text: str) -> None:
    assert str(expr) == text


@pytest.mark.spec("types:11:3")
def test_steps_of_when_share_nothing() -> None:
    first = when(col("a")).then(1)
    assert (str(first.otherwise(2)), str(first.when(col("b")).then(3)), str(first)) == (
        'WHEN col("a") THEN 1 ELSE 2',
        'WHEN col("a") THEN 1 WHEN col("b") THEN 3',
        'WHEN col("a") THEN 1',
    )
    assert first.root is first


@pytest.mark.spec("types:8.1:5", "types:14:4")
def test_a_typed_expression_is_finished() -> None:
    typed = col("i").astype(Optional[float])
    assert isinstance(typed, TypedExpr)
    assert typed.dtype == Optional[float]
    assert print_node(typed.expr.node) == 'col("i")'
    assert [name for name in ("num", "str", "eval", "fillnull", "__add__") if hasattr(typed, name)] == []


@pytest.mark.spec("types:8.1:1")
def test_namespaces_are_expressions_and_chain() -> None:
    text = col("x").str.lower()
    assert isinstance(text, Expr)
    assert printed(text.len()) == printed(text.str.len()) == 'LEN(LOWER(col("x")))'
    assert printed(col("x").str.split(",").list.at(0).num) == 'SPLIT(col("x"), ",")[0]'
    assert not hasattr(col("x").list.at(0), "lower")
    assert not hasattr(col("x").dict.get("a"), "sqrt")
    assert not hasattr(col("x").struct.get("a"), "len")
    assert not hasattr(col("x").str.parse(str), "lower")
    zoned = col("t").dt.with_tz("Asia/Tokyo")
    assert zoned.hour.node == zoned.dt.hour.node != col("t").dt.hour.node
    assert zoned.parts("hour").node == col("t").dt.hour.node


@pytest.mark.parametrize("unit", list(TimeUnit))
@pytest.mark.spec("types:14:6")
def test_units_are_members_or_words_in_any_case(unit: TimeUnit) -> None:
    assert col("t").dt.parts(unit.upper()).node == col("t").dt.parts(unit).node == col("t").dt.parts(str(unit)).node


def test_identity_is_the_objects() -> None:
    one, other = col("a"), col("a")
    assert len({one, other, one}) == 2
    assert one.node == other.node
    for copied in (copy.deepcopy(one + 1), pickle.loads(pickle.dumps(one + 1))):  # noqa: S301 (our own)
        assert copied.node == (one + 1).node
    assert make_expr(one) is one


class Names(Visitor):
    """A visitor that collects the columns by hand, as a user may."""

    def visitRef(self, node: Any) -> list[str]:  # noqa: N802 (the API's name)
        return [node.name]

    def visitLiteral(self, _node: Any) -> list[str]:  # noqa: N802 (the API's name)
        return []

    def visitBinary(self, node: Any) -> list[str]:  # noqa: N802 (the API's name)
        return [*self.visit(node.left), *self.visit(node.right)]

    def visitThen(self, node: Any) -> list[str]:  # noqa: N802 (the API's name)
        return [name for branch in node.branches for part in branch for name in self.visit(part)]


@pytest.mark.spec("types:16.3:1")
def test_visitors_go_by_the_kind_of_the_node() -> None:
    assert Names().visit(when(col("a") == 1).then(col("b") + col("a"))) == ["a", "b", "a"]
    with pytest.raises(NotImplementedError, match="Names has no visitNumber"):
        Names().visit(col("a").abs() + 1)
    with pytest.raises(NotImplementedError, match="visitOtherwise"):
        Names().visit(when(col("a")).then(1).otherwise(2))
    with pytest.raises(NotImplementedError, match=r"visitWhen.*when"):
        Names().visit(when(col("a")))
    with pytest.raises(InvalidExprException, match="int 3"):
        Names().visit(3)


@given(node=any_expression(depth=2))
@pytest.mark.spec("types:16.3:1")
def test_every_node_has_a_method_of_visitors(node: Node) -> None:
    called: list[str] = []

    class Any_(Visitor):  # noqa: N801 (answers to all)
        def __getattr__(self, name: str) -> Any:
            return lambda _: called.append(name)

    for part in walk(node):
        Any_().visit(part)
    assert {name[:5] for name in called} == {"visit"}


@pytest.mark.spec("types:16.3:3")
def test_references_are_columns_in_all_places() -> None:
    expr = (
        when(col("p").str.startswith(col("q")))
        .then(col("l").list.map("v", var("v") + col("b")).sum())
        .otherwise(col("d").dict.get(col("k"), col("z")))
    )
    assert FetchReferences().fetch(expr) == {"p", "q", "l", "b", "d", "k", "z"}
    assert columns_of(expr.node) == ("p", "q", "l", "b", "d", "k", "z")
    references = FetchReferences()
    references.visit(Dot.expr(x=col("m"), y=col("n")))
    references.visit(Dot.zip(x=col("o"), y=repeat(1.5, col("m"))))
    assert references.refs == {"m", "n", "o"}


@pytest.mark.spec("types:16.3:4")
def test_serialized_expressions_can_be_read() -> None:
    expr = col("l").list.map("v", var("v") + 1)
    assert decode_expr(ExprSerializer().serialize(expr)) == expr.node
