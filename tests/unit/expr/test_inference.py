# The tests pass wrong arguments, and expressions in place of values.
# mypy: disable-error-code="attr-defined, misc, type-arg, valid-type"
from datetime import date, datetime
from typing import Any, Dict, List, Optional

import pytest

from caraway.dtypes import Decimal, between, oneof, regex, struct
from caraway.expr import Expr, TimeUnit, col, from_epoch, lit, make_struct, now, repeat, var, when
from caraway.expr import datetime as instant
from caraway.expr.expr import zip as zip_lists
from caraway.expr.inference import infer_nullable
from caraway.expr.nodes import NODE_TYPES
from tests.unit.expr.columns import CODE, RATIO, SCHEMA, SIZE, SMALL, Dot, Line


def row(ids: str, *values: Any) -> Any:
    """Return a case that covers rows of the specification of types and expressions."""
    return pytest.param(*values, marks=pytest.mark.spec(*[f"types:{row}" for row in ids.split()]))


@struct
class Wide:
    """A Dot whose int is a float, with another order of fields."""

    y: Optional[float]
    x: float


@struct
class Strict:
    x: int
    y: float


@pytest.mark.parametrize("op", ["+", "-", "*"])
@pytest.mark.parametrize(
    ("left", "right", "dtype"),
    [
        ("i", "i", int),
        ("i", "f", float),
        ("f", "i", float),
        ("f", "f", float),
        ("oi", "i", Optional[int]),
        ("i", "oi", Optional[int]),
        ("oi", "f", Optional[float]),
        ("of", "of", Optional[float]),
        ("small", "i", int),
        ("grade", "small", int),
        ("ratio", "i", float),
    ],
)
@pytest.mark.spec("types:9.1:1", "types:10.1:1")
def test_sums_and_products(op: str, left: str, right: str, dtype: Any) -> None:
    made = {"+": col(left) + col(right), "-": col(left) - col(right), "*": col(left) * col(right)}[op]
    assert made.typeof(SCHEMA) == dtype


CASES = [
    # 9.1: divisions, negation, null as an operand.
    row("9.1:2 10.1:1", col("i") / 2, float),
    row("9.1:2", col("oi") / col("i"), Optional[float]),
    row("9.1:2", col("small") / 2.5, float),
    row("9.1:3", col("i") // 2, int),
    row("9.1:3", col("i") // 2.0, float),
    row("9.1:3", col("oi") // 2, Optional[int]),
    row("9.1:4", 7 % col("i"), int),
    row("9.1:4", 1.5 % col("oi"), Optional[float]),
    row("9.1:5 10.1:5", -col("oi"), Optional[int]),
    row("9.1:5", -col("f"), float),
    row("9.1:1", col("i") + None, Optional[int]),
    row("9.1:2", None / col("i"), Optional[float]),
    # 9.2.
    row("9.2:1 10.1:2", col("i") == col("f"), bool),
    row("9.2:1", col("i") != None, Optional[bool]),  # noqa: E711 (an expression)
    row("9.2:1", lit(None) == lit(None), Optional[bool]),
    row("9.2:1", col("s") == "a", bool),
    row("9.2:1", col("size") == col("os"), Optional[bool]),
    row("9.2:1", col("b") == col("ob"), Optional[bool]),
    row("9.2:1", col("y") == col("y"), bool),
    row("9.2:1 17:2", col("d") == col("od"), Optional[bool]),
    row("9.2:1", col("t") != col("t"), bool),
    row("9.2:1 17:1", col("m") == col("om"), Optional[bool]),
    row("9.2:1", col("li") == col("oli"), Optional[bool]),
    row("9.2:1", col("li") == col("lsmall"), bool),
    row("9.2:1", col("di") == col("di"), bool),
    row("9.2:1 17:3", col("p") == col("op"), Optional[bool]),
    row("9.2:2 10.1:2", col("i") < col("of"), Optional[bool]),
    row("9.2:2", 1 <= col("i"), bool),  # noqa: SIM300 (what is tested)
    row("9.2:2", col("t") >= col("t"), bool),
    row("9.2:2", col("d") > col("od"), Optional[bool]),
    row("9.2:2", col("s") < "b", bool),
    row("9.2:3 10.1:3", col("b") & col("ob"), Optional[bool]),
    row("9.2:3", True | col("b"), bool),
    row("9.2:3", col("b") | None, Optional[bool]),
    row("9.2:4 10.1:4", ~col("ob"), Optional[bool]),
    row("9.2:5 8.1:2", col("oi").isnull(), bool),
    row("9.2:5", lit(None).isnull(), bool),
    # 9.4.
    row("9.4:1 11:3", when(col("b")).then(1).otherwise(2.5), float),
    row("9.4:1", when(col("ob")).then(col("oi")).otherwise(1), Optional[int]),
    row("9.4:1", when(col("b")).then(1).when(col("b")).then(None).otherwise(3), Optional[int]),
    row("9.4:1", when(col("b")).then(col("small")).otherwise(3), int),
    row("9.4:1", when(col("b")).then(col("small")).otherwise(col("small")), SMALL),
    row("9.4:1", when(col("b")).then(col("code")).otherwise(col("size")), str),
    row("9.4:1", when(col("b")).then(col("p")).otherwise(col("op")), Optional[Dot]),
    row("9.4:2 11:3", when(col("b")).then(1), Optional[int]),
    row("9.4:2 11:3", when(col("b")).then(1) + 1, Optional[int]),
    row("9.4:3 8.1:3", col("oi").fillnull(0), int),
    row("9.4:3", col("oi").fillnull(1.5), float),
    row("9.4:3", col("of").fillnull(1), float),
    row("9.4:3", col("oi").fillnull(col("of")), Optional[float]),
    row("9.4:3", col("oi").fillnull(None), Optional[int]),
    row("9.4:3 17:1", col("om").fillnull(col("m")), Decimal[2]),
    row("9.4:3", col("op").fillnull(lit(Dot(1, None), Dot)), Dot),
    row("9.4:4", col("i").fillnull(0), int),
    row("9.4:4", col("i").fillnull(1.5), float),
    # 11.
    row("11:1", col("small"), SMALL),
    row("11:1", col("p"), Dot),
    row("11:2", lit(3, float), float),
    row("11:2", lit(True), bool),
    row("11:2", lit("a"), str),
    row("11:2", lit(date(2024, 1, 1), Optional[date]), date),
    row("11:2", lit([1, None], List[Optional[int]]), List[Optional[int]]),
    row("11:2", lit({"a": 1}, Dict[str, float]), Dict[str, float]),
    row("11:2", lit(b"a", bytes), bytes),
    row("11:2", lit({"x": 1, "y": None}, Dot), Dot),
    row("11:5", now(), datetime),
    row("11:6", col("li").list.map("x", var("x") * 2.5), List[float]),
    row("11:7", repeat(col("oi"), 3), List[Optional[int]]),
    row("11:7", repeat("a", col("i")), List[str]),
    row("11:7", repeat(col("small"), col("small")), List[int]),
    row("11:7", repeat(col("p"), 2), List[Dot]),
    row("11:8 3b:7", Dot.zip(x=col("li"), y=col("lf")), List[Dot]),
    row("11:8", zip_lists(Dot, {"y": col("e"), "x": col("li")}), List[Dot]),
    row("11:9 3b:6", Dot.expr(x=col("i"), y=None), Dot),
    row("11:9", make_struct({"y": col("oi"), "x": col("small")}, Dot), Dot),
    row("11:9", make_struct({"name": "a", "start": col("p"), "points": col("lp")}, Line), Line),
    row("11:10", from_epoch(col("oi")), Optional[datetime]),
    row("11:10", from_epoch(col("i"), unit="millisecond"), datetime),
    row("11:11", instant(2024, 2, 29, 12, timezone="Asia/Tokyo"), datetime),
    row("11:11", instant(2024, 1, 1, timezone=None), datetime),
    # 12.1.
    row("12.1:1 8.1:4", col("oi").num.abs(), Optional[int]),
    row("12.1:1 8.1:4", col("f").abs(), float),
    row("12.1:2 8.1:4", col("f").ceil(), int),
    row("12.1:2", col("of").floor(), Optional[int]),
    row("12.1:3 8.1:4", col("f").round(), int),
    row("12.1:3", col("i").num.round(2), float),
    row("12.1:3", col("of").num.round(1), Optional[float]),
    row("12.1:4", col("of").num.to_string(), Optional[str]),
    row("12.1:5", col("i").num.sqrt(), float),
    row("12.1:6", col("i").num.pow(2), int),
    row("12.1:6", col("i").num.pow(0.5), float),
    row("12.1:6", col("f").num.pow(col("oi")), Optional[float]),
    row("12.1:7", col("i").num.log(), float),
    row("12.1:7", col("of").num.log(base=10), Optional[float]),
    row("12.1:8", col("i").num.sin() + col("f").num.cos() + col("of").num.tan(), Optional[float]),
    row("12.1:9", col("i").num.arcsin() + col("f").num.arccos() + col("f").num.arctan(), float),
    row("12.1:10", col("of").num.is_nan(), Optional[bool]),
    row("12.1:11", col("i").num.is_infinite(), bool),
    # 12.2.
    row("12.2:1 8.1:1", col("os").str.lower().upper(), Optional[str]),
    row("12.2:2", col("code").str.len(), int),
    row("12.2:2", col("i").num.to_string().len(), int),
    row("12.2:3", col("code").str.concat(col("size")), str),
    row("12.2:4", col("s").str.contains(col("os")), Optional[bool]),
    row("12.2:5", col("s").str.startswith("a") & col("s").str.endswith("b"), bool),
    row("12.2:6", col("os").str.split(","), Optional[List[str]]),
    row("12.2:6 8.1:1", col("s").str.split(",").len(), int),
    row("12.2:7 12.2.1:1", col("os").str.strptime("%Y-%m-%dT%H:%M:%S%.3f%z"), Optional[datetime]),
    row("12.2:7 12.2.1:4", col("s").str.strptime("%d/%b/%y", timezone=None).year, int),
    row("12.2:8 12.2.2:10", col("s").str.parse(between(int, 0, 5)), between(int, 0, 5)),
    row("12.2:8 12.2.2:8", col("os").str.parse(Dot), Optional[Dot]),
    row("12.2:8 12.2.2:11", col("s").str.parse(Dict[str, Decimal[2]]), Dict[str, Decimal[2]]),
    row("12.2:9 12.2.3:1", col("s").str.json_extract("$.a[0]").len(), Optional[int]),
    # 12.3.
    row("12.3:1", col("t").dt.with_tz("Asia/Tokyo").hour, int),
    row("12.3:1", col("t").dt.with_tz(None).dt.hour, int),
    row("12.3:2", col("ot").dt.year + col("t").dt.month + col("t").dt.day, Optional[int]),
    row("12.3:2", col("t").dt.hour + col("t").dt.minute + col("t").dt.second, int),
    row("12.3:3", col("t").dt.week, int),
    row("12.3:4", col("t").dt.millisecond, int),
    row("12.3:5", col("t").dt.microsecond, int),
    row("12.3:6", col("t").dt.parts("WEEK", None), int),
    row("12.3:6", col("ot").dt.parts(TimeUnit.DAY, "EST"), Optional[int]),
    row("12.3:7", col("t").dt.since(col("ot"), unit="day"), Optional[int]),
    row("12.3:7", col("t").dt.since(instant(2024, 1, 1, timezone="US/Eastern")), int),
    row("12.3:8", now().since_epoch(TimeUnit.MILLISECOND), int),
    row("12.3:9", col("ot").dt.strftime("%F %T").str.len(), Optional[int]),
    # 12.4.
    row("12.4:1", col("oli").list.len(), Optional[int]),
    row("12.4:1", col("e").list.len(), int),
    row("12.4:2 8.1:7", col("li").list.at(-1), Optional[int]),
    row("12.4:2", col("lsmall").list.at(col("oi")), Optional[SMALL]),
    row("12.4:2 8.1:7", col("li")[0], Optional[int]),
    row("12.4:2 8.1:7", col("ll")[col("i")][1], Optional[int]),
    row("12.4:3", col("li").list.contains(1), bool),
    row("12.4:3", col("lf").list.contains(col("i")), bool),
    row("12.4:3", col("li").list.contains(col("oi")), Optional[bool]),
    row("12.4:3", col("loi").list.contains(3), Optional[bool]),
    row("12.4:3", col("li").list.contains(None), Optional[bool]),
    row("12.4:3", col("lsmall").list.contains(3), bool),
    row("12.4:4", col("loi").list.hasnull(), bool),
    row("12.4:4", col("oli").list.hasnull(), Optional[bool]),
    row("12.4:5", col("li").list.sum(), int),
    row("12.4:5", col("loi").list.sum(), Optional[int]),
    row("12.4:5", col("lsmall").list.sum(), int),
    row("12.4:5", col("e").list.sum(), float),
    row("12.4:6", col("lf").list.min(), Optional[float]),
    row("12.4:6 8.1:1", col("li").list.max().sqrt(), Optional[float]),
    row("12.4:7", col("li").list.mean(), Optional[float]),
    row("12.4:8", col("lb").list.all(), bool),
    row("12.4:8", col("lob").list.all(), Optional[bool]),
    row("12.4:9", col("lb").list.any(), bool),
    row("12.4:10", col("oli").list.filter("x", var("x") > 1), Optional[List[int]]),
    row("12.4:10", col("loi").list.filter("x", ~var("x").isnull()), List[Optional[int]]),
    row("12.4:10", col("e").list.filter("x", var("x") > col("i")), List[float]),
    row("12.4:11", col("loi").list.map("x", var("x") + 1), List[Optional[int]]),
    row("12.4:11", col("oli").list.map("x", var("x").num.to_string()), Optional[List[str]]),
    row("12.4:11", col("li").list.map("i", var("i") + col("i")).sum(), int),
    row("12.4:11", col("li").list.map("x", 1), List[int]),
    row("12.4:11 11:6", col("ll").list.map("l", var("l").list.sum()), List[int]),
    row("12.4:11", col("lp").list.map("p", var("p").struct.get("y")), List[Optional[float]]),
    # 12.5.
    row("12.5:1 8.1:7", col("di").dict.get("a"), Optional[int]),
    row("12.5:1", col("di")["a"], Optional[int]),
    row("12.5:1", col("di").dict.get("a", 0), int),
    row("12.5:1", col("df").dict.get(col("s"), 0), float),
    row("12.5:1", col("odi").dict.get("a", 0), Optional[int]),
    row("12.5:1", col("di").dict.get("a", None), Optional[int]),
    row("12.5:1", col("di").dict.get("a", col("oi")), Optional[int]),
    row("12.5:1", col("di").dict.get(col("os"), 1), Optional[int]),
    row("12.5:1", col("dof").dict.get("a", 1.5), Optional[float]),
    row("12.5:2", col("odi").dict.len(), Optional[int]),
    row("12.5:3", col("di").dict.contains("a"), bool),
    row("12.5:3", col("di").dict.contains(col("os")), Optional[bool]),
    # 12.6.
    row("12.6:1", col("p").struct.get("x"), int),
    row("12.6:1", col("op").struct.get("x"), Optional[int]),
    row("12.6:1", col("line").struct.get("start").struct.get("y"), Optional[float]),
]


@pytest.mark.parametrize(("expr", "dtype"), CASES, ids=lambda value: str(value) if isinstance(value, Expr) else "")
@pytest.mark.spec("types:13:1", "types:8.1:6")
def test_types(expr: Expr, dtype: Any) -> None:
    assert expr.typeof(SCHEMA) == dtype


@pytest.mark.parametrize(
    ("expr", "dtype", "fits"),
    [
        row("9.3:1", col("i"), int, True),
        row("9.3:1", col("i"), Optional[int], True),
        row("9.3:1", col("li"), Optional[List[int]], True),
        row("9.3:1", col("oi"), int, False),
        row("9.3:2", col("i"), float, True),
        row("9.3:2", col("i"), Optional[float], True),
        row("9.3:2", col("i"), between(int, 0, 1), True),
        row("9.3:2", col("i"), oneof(int, [1]), True),
        row("9.3:2", col("i"), between(float, 0, 1), False),
        row("9.3:2", col("i"), Decimal[2], False),
        row("9.3:3", col("f"), between(float, 0, 1), True),
        row("9.3:3", col("f"), int, False),
        row("9.3:4", col("s"), regex("a"), True),
        row("9.3:4", col("s"), oneof(str, ["a"]), True),
        row("9.3:4", col("s"), int, False),
        row("9.3:5", col("oi"), Optional[float], True),
        row("9.3:5", col("oi"), float, False),
        row("9.3:6", col("small"), Optional[int], True),
        row("9.3:6", col("small"), oneof(int, [1]), True),
        row("9.3:6", col("grade"), between(int, 5, 6), True),
        row("9.3:6", col("small"), float, False),
        row("9.3:7", col("ratio"), float, True),
        row("9.3:7", col("ratio"), Optional[float], True),
        row("9.3:8", col("size"), str, True),
        row("9.3:8", col("size"), Optional[str], True),
        row("9.3:9", col("code"), CODE, True),
        row("9.3:9", col("code"), Optional[str], True),
        row("9.3:10", lit(None), Optional[Dot], True),
        row("9.3:10", lit(None), int, False),
        row("9.3:11", col("p"), Wide, True),
        row("9.3:11", col("p"), Optional[Wide], True),
        row("9.3:11", col("p"), Strict, False),
        row("9.3:11", col("p"), Line, False),
        row("9.3:1", col("b"), int, False),
        row("9.3:1", col("i"), bool, False),
        row("9.3:1", col("li"), List[float], False),
        row("9.3:1", col("li"), List[Optional[int]], False),
        row("9.3:1", col("li"), Optional[List[float]], False),
        row("9.3:1", col("di"), Dict[str, float], False),
        row("9.3:1", col("m"), Decimal[3], False),
        row("9.3:1", col("ratio"), RATIO, True),
        row("9.3:1", col("size"), Optional[SIZE], True),
    ],
)
@pytest.mark.spec("types:13:2")
def test_matching(expr: Expr, dtype: Any, fits: bool) -> None:
    assert expr.matches_type(dtype, SCHEMA) is fits


@pytest.mark.parametrize("node_type", NODE_TYPES)
def test_every_node_is_typed(node_type: type) -> None:
    assert infer_nullable.dispatch(node_type) is not infer_nullable.dispatch(object)
