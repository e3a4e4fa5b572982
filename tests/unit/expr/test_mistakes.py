# mypy: disable-error-code="arg-type, attr-defined, call-arg, comparison-overlap, misc, operator, redundant-expr"
# mypy: disable-error-code="type-arg, valid-type"
# mypy: no-warn-unreachable
"""Tests of wrong expressions: the class of the exception, and the facts in its message."""

import math
from collections.abc import Callable
from datetime import datetime as clock
from typing import Any, Dict, List

import numpy as np
import pytest

from caraway.dtypes import Decimal
from caraway.errors import DefinitionError, DefinitionTypeError, InvalidExprException
from caraway.expr import Expr, col, datetime, from_epoch, lit, make_struct, repeat, var, when
from caraway.expr.expr import zip as zip_lists
from caraway.expr.visitor import ExprPrinter, FetchReferences
from tests.unit.expr.columns import SCHEMA, Dot, Line

X, T = col("x"), col("t")
BUILD: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    # Truth values, and operations by which Python asks for them.
    ("14:1 10.1:8", lambda: bool(X), InvalidExprException, "& | ~"),
    ("14:1 10.1:8", lambda: X and X, InvalidExprException, 'truth value|col("x")'),
    ("14:1", lambda: X or 1, InvalidExprException, "truth value"),
    ("14:1", lambda: not X, InvalidExprException, "truth value"),
    ("14:1", lambda: 1 if X > 0 else 2, InvalidExprException, 'when()|col("x") > 0'),
    ("14:1", lambda: 1 < X < 3, InvalidExprException, "truth value"),
    ("14:1", lambda: 1 in X, InvalidExprException, "in|list.contains"),
    ("14:1", lambda: X in [col("a"), X], InvalidExprException, "truth value"),
    ("14:1", lambda: list(X), InvalidExprException, "iterated|list.map"),
    # Operators that don't exist.
    ("14:2 10.1:6", lambda: X ^ 1, InvalidExprException, '^|!=|col("x")'),
    ("14:2 10.1:6", lambda: True ^ X, InvalidExprException, "^"),
    ("10.1:7", lambda: X**2, TypeError, "**"),
    ("10.1:7", lambda: X << 1, TypeError, "<<"),
    ("10.1:7", lambda: X >> 1, TypeError, ">>"),
    ("10.1:7", lambda: +X, TypeError, "+"),
    ("10.1:7", lambda: abs(X), TypeError, "abs"),
    ("10.1:7", lambda: divmod(X, 2), TypeError, "divmod"),
    # Arguments of a wrong kind.
    ("14:3 11:1", lambda: col(3), InvalidExprException, "col|int 3"),
    ("14:3 12.6:1", lambda: X.struct.get(3), InvalidExprException, "struct.get|int 3"),
    ("14:3 12.6:1", lambda: X.struct.get(col("y")), InvalidExprException, "struct.get"),
    ("14:3 8.1:4", lambda: X.round(-1), InvalidExprException, "round|-1"),
    ("14:3 12.1:3", lambda: X.num.round(1.5), InvalidExprException, "round|1.5"),
    ("14:3 8.1:4", lambda: X.round(True), InvalidExprException, "round|True"),
    ("8.1:7", lambda: X[1.5], InvalidExprException, "1.5|list.at|dict.get"),
    ("8.1:7", lambda: X[1:2], InvalidExprException, "slice"),
    ("8.1:7", lambda: X[True], InvalidExprException, "True"),
    ("11:6", lambda: var(3), InvalidExprException, "var|int 3"),
    ("14:4", lambda: X + len, DefinitionTypeError, "function|len"),
    ("14:4", lambda: X.fillnull(lambda df: df), DefinitionTypeError, "function|lambda"),
    ("14:4 8.1:5", lambda: X + X.astype(int), DefinitionTypeError, "astype|last"),
    ("14:4 8.1:5", lambda: when(X).then(X.astype(int)), DefinitionTypeError, "astype"),
    ("14:4", lambda: X.list.map("v", lambda v: v + 1), DefinitionTypeError, "function"),
    ("14:5 11:2", lambda: X + [1], DefinitionTypeError, "list|lit(value, type)"),  # noqa: RUF005 (an expression)
    ("14:5 11:2", lambda: lit(clock(2024, 1, 1)), DefinitionTypeError, "datetime"),  # noqa: DTZ001
    ("14:5", lambda: X == {"a": 1}, DefinitionTypeError, "dict"),
    ("14:5", lambda: np.int64(3) + X, DefinitionTypeError, "int64"),
    ("14:5", lambda: lit(Dot(1, None)), DefinitionTypeError, "Dot"),
    ("11:2", lambda: lit(3.5, int), DefinitionError, "3.5|int|float"),
    ("11:2", lambda: lit(3.0, int), DefinitionError, "3.0|int"),
    ("11:2", lambda: lit(True, int), DefinitionError, "True|bool"),
    ("11:2", lambda: lit("1", int), DefinitionError, "'1'|str"),
    ("11:2", lambda: lit([1, None], List[int]), DefinitionError, "element 1|null"),
    ("11:2", lambda: lit([1.5, 2], List[int]), DefinitionError, "1.5"),
    ("11:2", lambda: lit({"x": 1.5, "y": 1}, Dot), DefinitionError, "field x|1.5"),
    ("11:2", lambda: lit("2024-01-01", clock), DefinitionError, "datetime|str"),
    ("11:2", lambda: lit(2**63), DefinitionError, "9223372036854775808|64"),
    ("11:2", lambda: lit(3, object), DefinitionTypeError, "object"),
    ("14:6 12.3:6", lambda: T.dt.parts("quarter"), DefinitionError, "quarter|millisecond"),
    ("14:6 12.3:7", lambda: T.dt.since(T, "days"), DefinitionError, "days|week"),
    ("14:6 12.3:8", lambda: T.dt.since_epoch("nanosecond"), DefinitionError, "nanosecond"),
    ("14:6 11:10", lambda: from_epoch(1, "seconds"), DefinitionError, "seconds"),
    ("12.1:7", lambda: X.num.log(base=col("b")), DefinitionTypeError, 'base|col("b")'),
    ("12.2:6", lambda: X.str.split(col("b")), DefinitionTypeError, 'split|sep|col("b")'),
    ("12.2:7", lambda: X.str.strptime(3), DefinitionTypeError, "strptime|format|int 3"),
    ("12.2:7", lambda: X.str.strptime("%Y", timezone=5), DefinitionTypeError, "strptime|timezone|5"),
    ("12.2:8", lambda: X.str.parse(object), DefinitionTypeError, "object"),
    ("12.2:9", lambda: X.str.json_extract(0), DefinitionTypeError, "json_extract|path"),
    ("12.3:1", lambda: T.dt.with_tz(9), DefinitionTypeError, "with_tz|9"),
    ("12.3:9", lambda: T.dt.strftime(None), DefinitionTypeError, "strftime|format"),
    ("12.4:10", lambda: X.list.filter(var("v"), True), DefinitionTypeError, "filter|var"),
    ("11:11", lambda: datetime(2024, 1, col("d")), DefinitionTypeError, 'datetime|day|col("d")'),
    ("11:11", lambda: datetime(2024, 1.0, 1), DefinitionTypeError, "month|1.0"),
    ("11:9", lambda: make_struct([1], Dot), DefinitionTypeError, "make_struct|list"),
    ("11:9", lambda: make_struct({"x": 1}, int), DefinitionTypeError, "make_struct|int|@struct"),
    ("11:8", lambda: zip_lists(int, {}), DefinitionTypeError, "zip|int"),
    # Choices.
    ("14:7 11:3", lambda: when(X).astype(int), InvalidExprException, 'when(col("x"))|then'),
    ("14:7 11:3", lambda: when(X).typeof({}), InvalidExprException, "then"),
    ("14:7 11:3", lambda: when(X) + 1, InvalidExprException, "then"),
    ("14:7 11:3", lambda: 1 + X.fillnull(when(X)), InvalidExprException, "then"),
    ("14:7 11:3", lambda: when(X).then(1).when(X).num, InvalidExprException, "then"),
    ("14:7", lambda: ExprPrinter().print(when(X)), InvalidExprException, "then"),
    ("11:3", lambda: when(X).otherwise(1), AttributeError, "otherwise"),
    ("11:3", lambda: when(X).when(X), AttributeError, "when"),
    # Methods of another namespace.
    ("8.1:1", lambda: X.lower(), AttributeError, "lower"),
    ("8.1:1", lambda: X.str.strip(), AttributeError, "strip"),
    ("8.1:1", lambda: X.num.lower(), AttributeError, "lower"),
    ("8.1:5", lambda: X.astype(int).fillnull(0), AttributeError, "fillnull"),
    ("8.1:5", lambda: X.astype(int) + 1, TypeError, "TypedExpr"),
    ("8.1:5", lambda: X.astype(object), DefinitionTypeError, "object"),
    ("16.3:3", lambda: FetchReferences().fetch("x"), InvalidExprException, "str 'x'"),
]


@pytest.mark.parametrize(
    ("wrong", "error", "facts"),
    [
        pytest.param(wrong, error, facts, marks=pytest.mark.spec(*[f"types:{row}" for row in rows.split()]))
        for rows, wrong, error, facts in BUILD
    ],
)
@pytest.mark.spec("types:8:1")
def test_mistakes_in_building(wrong: Callable[[], Any], error: type[Exception], facts: str) -> None:
    with pytest.raises(error) as caught:
        wrong()
    assert [fact for fact in facts.split("|") if fact not in str(caught.value)] == [], str(caught.value)


ILL_TYPED: list[tuple[str, Expr, str]] = [
    ("11:1", col("gone"), "gone|oi"),
    ("9.1:1", col("s") + "a", 'operator +|str|(col("s") + "a")'),
    ("9.1:1", T - T, "operator -|datetime"),
    ("9.1:1 17:1", col("m") + 1, "operator +|Decimal[2]"),
    ("9.1:1", col("b") * 2, "operator *|bool"),
    ("9.1:1 17:2", col("d") + 1, "operator +|date"),
    ("9.1:1", col("li") + 1, "operator +|List[int]"),
    ("9.1:2", col("y") / 2, "operator /|bytes"),
    ("9.1:3", col("b") // 2, "operator //|bool"),
    ("9.1:4", col("s") % 2, "operator %|str"),
    ("9.1:5", -col("b"), "operator -|bool"),
    ("9.1:1", lit(None) + None, "null"),
    ("9.2:1", col("i") == "a", "==|int|str"),
    ("9.2:1", col("d") == T, "==|datetime|date"),
    ("9.2:1", col("b") == 1, "==|bool|int"),
    ("9.2:1", col("li") == col("lf"), "==|List[int]|List[float]"),
    ("9.2:1", col("m") != lit("1", str), "!=|Decimal[2]|str"),
    ("9.2:1", col("p") == col("line"), "==|Dot|Line"),
    ("9.2:2", col("b") < col("b"), "<|bool"),
    ("9.2:2", col("m") >= col("m"), ">=|Decimal[2]"),
    ("9.2:2", col("s") > 1, ">|str|int"),
    ("9.2:2", col("di") > col("di"), ">|Dict[str, int]"),
    ("9.2:3", col("i") & col("b"), "and|int"),
    ("9.2:3", col("b") | "a", "or|str"),
    ("9.2:4", ~col("i"), "~|int"),
    ("9.4:1 11:3", when(col("i")).then(1), "when|int|bool"),
    ("9.4:1", when(None).then(1), "when|null|bool"),
    ("9.4:1", when(col("b")).then(1).otherwise("a"), "common|int|str"),
    ("9.4:1", when(col("b")).then(1).otherwise(True), "common|int|bool"),
    ("9.4:1", when(col("b")).then(col("li")).otherwise(col("lf")), "List[int]|List[float]"),
    ("9.4:3", col("oi").fillnull("a"), "Optional[int]|str"),
    ("9.4:4", col("i").fillnull("a"), "int|str"),
    ("11:2", lit(None), "null|astype|output_dtype|fillnull"),
    ("11:6", var("v"), "v|list.map"),
    ("11:6", col("li").list.map("v", var("w")), "w|v"),
    ("11:7", repeat(1, col("oi")), "repeat|Optional[int]"),
    ("11:7", repeat(1, 1.5), "repeat|float"),
    ("11:7", repeat(None, 2), "repeat|null"),
    ("11:8", Dot.zip(x=col("li")), "Dot|lacks y"),
    ("11:8", Dot.zip(x=col("li"), y=col("lf"), z=col("li")), "Dot|no z"),
    ("11:8", Dot.zip(x=col("oli"), y=col("lf")), "x|Optional[List[int]]"),
    ("11:8", Dot.zip(x=col("ls"), y=col("lf")), "x|int|str"),
    ("11:8", Dot.zip(x=col("i"), y=col("lf")), "x|list|int"),
    ("11:9 3b:6", Dot.expr(x=1), "make_struct|Dot|lacks y|x, y"),
    ("11:9", Dot.expr(x=1, y=2.0, z=3), "Dot|has no z"),
    ("11:9", Dot.expr(x=None, y=2.0), "x|int|null"),
    ("11:9", Dot.expr(x=1, y="a"), "y|Optional[float]|str"),
    ("11:9", Line.expr(name="a", start=None, points=col("li")), "points|List[Dot]|List[int]"),
    ("11:10", from_epoch(col("f")), "from_epoch|float"),
    ("11:10", from_epoch(col("i"), "day"), "day|second, millisecond, microsecond"),
    ("11:11", datetime(2024, 13, 1), "datetime|month"),
    ("11:11", datetime(2024, 1, 1, 24), "hour"),
    ("11:11", datetime(2024, 1, 1, 0, 0, 60), "second"),
    ("11:11", datetime(2024, 1, 1, microsecond=1_000_000), "microsecond"),
    ("11:11", datetime(2023, 2, 30), "day"),
    ("11:11", datetime(2024, 1, 1, timezone="+05:30"), "+05:30"),
    ("11:11", datetime(2024, 3, 31, 2, 30, timezone="Europe/Paris"), "Europe/Paris|2024-03-31 02:30"),
    ("11:11", datetime(2024, 10, 27, 2, 30, timezone="Europe/Paris"), "Europe/Paris|twice"),
    ("12.1:1", col("s").abs(), "num.abs()|str"),
    ("12.1:2", col("b").ceil(), "num.ceil()|bool"),
    ("12.1:3", col("m").round(1), "round()|Decimal[2]"),
    ("12.1:4", col("s").num.to_string(), "num.to_string()|str"),
    ("12.1:5", T.num.sqrt(), "num.sqrt()|datetime"),
    ("12.1:6", col("i").num.pow("a"), "num.pow()|str"),
    ("12.1:7", col("s").num.log(10), "log()|str"),
    ("12.1:8", col("s").num.sin(), "num.sin()|str"),
    ("12.1:10", col("b").num.is_nan(), "num.is_nan()|bool"),
    ("12.2:2", col("i").str.len(), "str.len()|int"),
    ("12.2:3", col("s").str.concat(col("i")), "str.concat()|int"),
    ("12.2:4", col("s").str.contains(1), "str.contains()|int"),
    ("12.2:5", col("y").str.startswith("a"), "str.startswith()|bytes"),
    ("12.2:6", col("i").str.split(","), "split()|int"),
    ("12.2:7 12.2.1:2", col("s").str.strptime("%L"), "strptime()|%L|position 0"),
    ("12.2.1:2", col("s").str.strptime("%Y-%m-%d", timezone="Mars/Olympus"), "Mars/Olympus|Europe/Paris"),
    ("12.2.1:5", col("s").str.strptime("%H:%M"), "year"),
    ("12.2.2:11", col("s").str.parse(Dict[str, bytes]), "str.parse()|bytes"),
    ("12.2:8", col("i").str.parse(int), "str.parse()|int"),
    ("12.2.3:1", col("s").str.json_extract("a.b"), "str.json_extract()|a.b|$"),
    ("12.2.3:1", col("s").str.json_extract("$[-1]"), "$[-1]|negative"),
    ("12.3:1", T.dt.with_tz("+05:30").hour, "dt.hour|+05:30|Europe/Paris"),
    ("12.3:1", T.dt.with_tz("posixrules").hour, "posixrules"),
    ("12.3:2 17:2", col("d").dt.year, "dt.year|date"),
    ("12.3:6", T.dt.parts("day", timezone="Europe"), "Europe"),
    ("12.3:7", T.dt.since(col("d")), "dt.since()|date"),
    ("12.3:7", T.dt.since(T, "month"), "month|week"),
    ("12.3:8", T.dt.since_epoch("month"), "month"),
    ("12.3:9", T.dt.strftime("%!"), "dt.strftime()|%!"),
    ("12.4:1", col("i").list.len(), "list.len()|a list|int"),
    ("12.4:2", col("li").list.at(1.5), "list.at()|int|float"),
    ("12.4:2", col("s")[0], "list.at()|str"),
    ("12.4:3", col("li").list.contains(1.5), "List[int]|float"),
    ("12.4:3", col("ls").list.contains(1), "List[str]|int"),
    ("12.4:4", col("di").list.hasnull(), "list.hasnull()|Dict[str, int]"),
    ("12.4:5", col("ls").list.sum(), "list.sum()|int or float|List[str]"),
    ("12.4:6", col("lb").list.max(), "list.max()|List[bool]"),
    ("12.4:7", col("lp").list.mean(), "list.mean()|List[Dot]"),
    ("12.4:8", col("li").list.all(), "list.all()|bool|List[int]"),
    ("12.4:9", col("li").list.any(), "list.any()|bool"),
    ("12.4:10", col("li").list.filter("v", var("v")), "list.filter()|int|bool"),
    ("12.4:10", col("loi").list.filter("v", var("v") > 1), "Optional[bool]|fillnull"),
    ("12.4:11", col("li").list.map("v", None), "list.map()|null"),
    ("12.4:11", col("ll").list.map("v", var("v").list.map("w", var("w"))), "body of another"),
    ("12.5:1", col("li").dict.get("a"), "dict.get()|a dict|List[int]"),
    ("12.5:1", col("di").dict.get(1), "dict.get()|str|int"),
    ("12.5:1", col("di").dict.get("a", 1.5), "default|float|Dict[str, int]"),
    ("12.5:2", col("p").dict.len(), "dict.len()|Dot"),
    ("12.5:3", col("di").dict.contains(1), "dict.contains()|int"),
    ("12.6:1", col("p").struct.get("z"), "Dot|z|x, y"),
    ("12.6:1", col("di").struct.get("a"), "struct.get()|Dict[str, int]"),
]


@pytest.mark.parametrize(
    ("expr", "facts"),
    [
        pytest.param(expr, facts, marks=pytest.mark.spec(*[f"types:{row}" for row in rows.split()]))
        for rows, expr, facts in ILL_TYPED
    ],
)
@pytest.mark.spec("types:14:8", "types:8:2", "types:13:1", "types:13:2")
def test_mistakes_of_types(expr: Expr, facts: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        expr.typeof(SCHEMA)
    assert [fact for fact in facts.split("|") if fact not in str(caught.value)] == [], str(caught.value)
    if expr.node != lit(None).node:
        with pytest.raises(ValueError, match=r"\S"):
            expr.matches_type(Decimal[2], SCHEMA)


def test_ints_beyond_64_bits_and_infinities() -> None:
    assert lit(-(2**63)).typeof() is int
    assert lit(math.inf).typeof() is float
