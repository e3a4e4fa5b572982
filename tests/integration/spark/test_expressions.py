"""Tests every expression node on Spark against plain Python, over edge values."""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from pyspark.sql import SparkSession

from caraway.dtypes.types import BOOL, DATETIME, FLOAT, INT, STRING, DataType, optional
from caraway.errors import DefinitionError
from caraway.expr.inference import infer_nullable
from caraway.expr.nodes import (
    Binary,
    BinaryOp,
    DatePart,
    FillNull,
    IsNull,
    Literal,
    Node,
    Now,
    NumberCall,
    NumberFunction,
    Ref,
    Round,
    Since,
    SinceEpoch,
    StringCall,
    StringFunction,
    TimeUnit,
    Unary,
    UnaryOp,
    When,
)
from caraway.expr.polars.compiler import compile_expr
from caraway.expr.polars.values import to_polars
from caraway.spark.codec import name
from caraway.spark.expressions import SparkScope, compile_node
from caraway.spark.types import row_type

INTS = [None, 0, 1, -1, 2, -2, 7, -7, 10**9, -(2**63) + 1, 2**63 - 1]
NAN, INF = math.nan, math.inf
FLOATS = [
    None,
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.5,
    2.5,
    7.3,
    -7.3,
    1e300,
    1e16,
    1e15,
    1e-4,
    1e-5,
    1e-6,
    5e-324,
    INF,
    -INF,
    NAN,
    2.0**53 + 2,
]
TEXTS = [None, "", "a", "aB", "Straße", "日本", "a%b_", "b"]
BOOLS = [None, True, False]
INSTANTS = [None, 0, -1, 1_709_210_096_789_123, -86_400_000_001, 1_711_847_600_000_000]

Case = tuple[Node, Mapping[str, DataType], Sequence[Any], Callable[..., Any]]


def ref(column: str) -> Ref:
    return Ref(name=column)


def binary(op: BinaryOp) -> Binary:
    return Binary(op=op, left=ref("x"), right=ref("y"))


def pairs(xs: Sequence[Any], ys: Sequence[Any]) -> list[tuple[Any, Any]]:
    return [(x, y) for x in xs for y in ys]


def wrap(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def divide(x: float, y: float) -> float:
    x, y = float(x), float(y)
    if y == 0:
        return NAN if x == 0 or math.isnan(x) else math.copysign(INF, x) * math.copysign(1, y)
    return x / y


def floor(x: float) -> float:
    return float(math.floor(x)) if math.isfinite(x) else x


def modulo(x: float, y: float) -> float:
    return x - floor(divide(x, y)) * y


def order(x: float) -> tuple[bool, float]:
    return math.isnan(x), 0.0 if math.isnan(x) else x


def strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that returns null if an argument is null."""
    return lambda *values: None if None in values else function(*values)


ARITHMETIC: dict[BinaryOp, tuple[Callable[..., Any], Callable[..., Any]]] = {
    BinaryOp.ADD: (lambda x, y: wrap(x + y), lambda x, y: x + y),
    BinaryOp.SUB: (lambda x, y: wrap(x - y), lambda x, y: x - y),
    BinaryOp.MUL: (lambda x, y: wrap(x * y), lambda x, y: x * y),
    BinaryOp.DIV: (divide, divide),
    BinaryOp.FLOOR_DIV: (lambda x, y: wrap(x // y) if y else None, lambda x, y: floor(divide(x, y))),
    BinaryOp.MOD: (lambda x, y: x % y if y else None, modulo),
    BinaryOp.EQ: (lambda x, y: x == y, lambda x, y: order(x) == order(y)),
    BinaryOp.NE: (lambda x, y: x != y, lambda x, y: order(x) != order(y)),
    BinaryOp.LT: (lambda x, y: x < y, lambda x, y: order(x) < order(y)),
    BinaryOp.LE: (lambda x, y: x <= y, lambda x, y: order(x) <= order(y)),
    BinaryOp.GT: (lambda x, y: x > y, lambda x, y: order(x) > order(y)),
    BinaryOp.GE: (lambda x, y: x >= y, lambda x, y: order(x) >= order(y)),
}


def number_cases() -> list[Case]:
    ints, floats = {"x": optional(INT), "y": optional(INT)}, {"x": optional(FLOAT), "y": optional(FLOAT)}
    mixed = {"x": optional(INT), "y": optional(FLOAT)}
    cases: list[Case] = []
    for op, (of_ints, of_floats) in ARITHMETIC.items():
        cases.append((binary(op), ints, pairs(INTS, INTS), strict(of_ints)))
        cases.append((binary(op), floats, pairs(FLOATS, FLOATS), strict(of_floats)))
        as_floats = strict(lambda x, y, f=of_floats: f(float(x), y))
        cases.append((binary(op), mixed, pairs(INTS, FLOATS), as_floats))
    calls: dict[NumberFunction, tuple[Callable[..., Any], Callable[..., Any]]] = {
        NumberFunction.ABS: (abs, abs),
        NumberFunction.CEIL: (int, lambda x: long(x, math.ceil)),
        NumberFunction.FLOOR: (int, lambda x: long(x, math.floor)),
        NumberFunction.SQRT: (lambda x: root(float(x)), root),
        NumberFunction.IS_NAN: (lambda _: False, math.isnan),
        NumberFunction.IS_INFINITE: (lambda _: False, math.isinf),
        NumberFunction.TO_STRING: (str, text),
    }
    for function, (of_int, of_float) in calls.items():
        node = NumberCall(function=function, operand=ref("x"))
        cases.append((node, {"x": optional(INT)}, [(x,) for x in INTS], strict(of_int)))
        cases.append((node, {"x": optional(FLOAT)}, [(x,) for x in FLOATS], strict(of_float)))
    halves = [None, 2.5, -2.5, 0.5, -0.5, 0.49999999999999994, NAN, INF, 1e19, 1.005, 2.675, 1e300]
    whole, two = Round(operand=ref("x"), precision=0), Round(operand=ref("x"), precision=2)
    cases.append((whole, {"x": optional(FLOAT)}, [(x,) for x in halves], strict(lambda x: long(x, half_away))))
    cases.append((two, {"x": optional(FLOAT)}, [(x,) for x in halves], strict(round_two)))
    cases.append((whole, {"x": optional(INT)}, [(x,) for x in INTS], strict(int)))
    cases.append(
        (Unary(op=UnaryOp.NEGATE, operand=ref("x")), {"x": FLOAT}, [(x,) for x in FLOATS], strict(lambda x: -x))
    )
    return cases


def long(x: float, to_int: Callable[[float], int]) -> int | None:
    if not math.isfinite(x):
        return None
    result = to_int(x)
    return result if -(2**63) <= result < 2**63 else None


def half_away(x: float) -> int:
    whole = math.floor(abs(x))
    whole += abs(x) - whole >= 0.5
    return int(math.copysign(1, x)) * whole


def round_two(x: float) -> float:
    scaled = x * 100
    return half_away(scaled) / 100 if math.isfinite(scaled) and abs(scaled) < 2**53 else x


def root(x: float) -> float:
    return NAN if x < 0 else math.sqrt(x)


def text(x: float) -> str:
    if math.isnan(x):
        return "NaN"
    return {1e-05: "0.00001"}.get(x) or repr(x).replace("e+", "e").replace("e-0", "e-")


def logic_cases() -> list[Case]:
    bools = {"x": optional(BOOL), "y": optional(BOOL)}
    null = Literal(value=None, dtype=None)
    one_and_half = Literal(value=1.5, dtype=FLOAT)
    branches = ((binary(BinaryOp.GT), ref("x")), (IsNull(operand=ref("x")), one_and_half))
    either = {"x": optional(INT), "y": optional(INT)}
    return [
        (
            binary(BinaryOp.AND),
            bools,
            pairs(BOOLS, BOOLS),
            lambda x, y: False if False in (x, y) else strict(lambda *_: True)(x, y),
        ),
        (
            binary(BinaryOp.OR),
            bools,
            pairs(BOOLS, BOOLS),
            lambda x, y: True if True in (x, y) else strict(lambda *_: False)(x, y),
        ),
        (
            Unary(op=UnaryOp.NOT, operand=ref("x")),
            {"x": optional(BOOL)},
            [(b,) for b in BOOLS],
            strict(lambda b: not b),
        ),
        (IsNull(operand=ref("x")), {"x": optional(FLOAT)}, [(x,) for x in FLOATS], lambda x: x is None),
        (
            FillNull(operand=ref("x"), fill=one_and_half),
            {"x": optional(INT)},
            [(x,) for x in INTS],
            lambda x: 1.5 if x is None else float(x),
        ),
        (FillNull(operand=ref("x"), fill=ref("y")), either, pairs(INTS, INTS), lambda x, y: y if x is None else x),
        (Binary(op=BinaryOp.EQ, left=ref("x"), right=null), {"x": optional(INT)}, [(1,), (None,)], lambda _: None),
        (When(branches=branches, otherwise=None), either, pairs(INTS, INTS), when),
        (
            When(branches=branches, otherwise=Literal(value=3, dtype=INT)),
            either,
            pairs(INTS, INTS),
            lambda x, y: 3.0 if (w := when(x, y)) is None else w,
        ),
    ]


def when(x: int | None, y: int | None) -> float | None:
    if x is not None and y is not None and x > y:
        return float(x)
    return 1.5 if x is None else None


def string_cases() -> list[Case]:
    two = {"x": optional(STRING), "y": optional(STRING)}
    binaries: dict[StringFunction, Callable[..., Any]] = {
        StringFunction.CONTAINS: lambda x, y: y in x,
        StringFunction.STARTSWITH: str.startswith,
        StringFunction.ENDSWITH: str.endswith,
        StringFunction.CONCAT: lambda x, y: x + y,
    }
    unaries: dict[StringFunction, Callable[..., Any]] = {
        StringFunction.LOWER: str.lower,
        StringFunction.UPPER: str.upper,
        StringFunction.LEN: len,
    }
    return [
        (StringCall(function=f, operand=ref("x"), args=(ref("y"),)), two, pairs(TEXTS, TEXTS), strict(expected))
        for f, expected in binaries.items()
    ] + [
        (StringCall(function=f, operand=ref("x")), {"x": optional(STRING)}, [(t,) for t in TEXTS], strict(expected))
        for f, expected in unaries.items()
    ]


def time_cases() -> list[Case]:
    one, two = {"x": optional(DATETIME)}, {"x": optional(DATETIME), "y": optional(DATETIME)}
    cases: list[Case] = []
    for zone in ("UTC", "America/New_York", "Asia/Kolkata"):
        for part in TimeUnit:
            node = DatePart(operand=ref("x"), part=part, timezone=zone)
            cases.append((node, one, [(t,) for t in INSTANTS], strict(lambda t, p=part, z=zone: date_part(t, p, z))))
    units = {
        TimeUnit.YEAR: 365 * 86_400_000_000,
        TimeUnit.WEEK: 7 * 86_400_000_000,
        TimeUnit.DAY: 86_400_000_000,
        TimeUnit.HOUR: 3_600_000_000,
        TimeUnit.MINUTE: 60_000_000,
        TimeUnit.SECOND: 1_000_000,
        TimeUnit.MILLISECOND: 1_000,
        TimeUnit.MICROSECOND: 1,
    }
    for unit, micros in units.items():
        truncated = strict(lambda t, m=micros: int(math.copysign(1, t)) * (abs(t) // m))
        cases.append((SinceEpoch(operand=ref("x"), unit=unit), one, [(t,) for t in INSTANTS], truncated))
        since = strict(lambda x, y, f=truncated: f(x - y))
        cases.append((Since(operand=ref("x"), start=ref("y"), unit=unit), two, pairs(INSTANTS, INSTANTS), since))
    return cases


def date_part(micros: int, part: TimeUnit, zone: str) -> int:
    instant = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).astimezone(ZoneInfo(zone))
    match part:
        case TimeUnit.WEEK:
            return instant.isocalendar().week
        case TimeUnit.MILLISECOND:
            return instant.microsecond // 1_000
        case _:
            return int(getattr(instant, part))


CASES = [*number_cases(), *logic_cases(), *string_cases(), *time_cases()]


def test_all_nodes_over_edge_values(spark: SparkSession) -> None:
    """Evaluate all cases in one query, because a query for each would take minutes."""
    wrong = []
    by_columns: dict[tuple[Any, ...], list[Case]] = {}
    for case in CASES:
        by_columns.setdefault((tuple(case[1].items()), tuple(case[2])), []).append(case)
    for (columns, values), cases in by_columns.items():
        types = dict(columns)
        scope = SparkScope(types=types, columns={column: name(column) for column in types})
        frame = spark.createDataFrame(list(values), row_type(columns)).coalesce(1)
        found = frame.select(*(compile_node(node, scope).alias(str(i)) for i, (node, *_) in enumerate(cases))).collect()
        for row, result in zip(values, found, strict=True):
            for i, (node, _, _, expected) in enumerate(cases):
                if not same(result[i], expected(*row)):
                    wrong.append(f"{node} of {row}: {result[i]!r}, expected {expected(*row)!r}")
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong[:30])


def test_polars_agrees() -> None:
    """Check that the polars compiler has the same results over the same values."""
    wrong = []
    for node, types, values, expected in CASES:
        columns = [to_polars(c, [v[i] for v in values], t) for i, (c, t) in enumerate(types.items())]
        dtype = infer_nullable(node, types)
        result = pl.DataFrame(columns).select(compile_expr(node, types)).to_series().to_list()
        assert dtype is not None
        for row, found in zip(values, result, strict=True):
            if not same(found, expected(*row)):
                wrong.append(f"{node} of {row}: {found!r}, expected {expected(*row)!r}")
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong[:30])


def test_polars_divides_by_a_constant_as_spark_does() -> None:
    frame = pl.DataFrame({"x": [140.0, 140.0]})
    node = Binary(op=BinaryOp.DIV, left=ref("x"), right=Literal(value=100.0, dtype=FLOAT))
    assert frame.select(compile_expr(node, {"x": FLOAT})).to_series().to_list() == [1.4, 1.4]


def test_literals(spark: SparkSession) -> None:
    literals: list[tuple[object, DataType, object]] = [
        (3, INT, 3),
        (3, FLOAT, 3.0),
        (math.inf, FLOAT, math.inf),
        ("it's", STRING, "it's"),
        (True, BOOL, True),
        (1_000_000, DATETIME, 1_000_000),
        (None, optional(INT), None),
    ]
    scope = SparkScope(types={}, columns={})
    columns = [compile_node(Literal(value=v, dtype=t), scope).alias(str(i)) for i, (v, t, _) in enumerate(literals)]
    assert list(spark.range(1).select(*columns).collect()[0]) == [expected for *_, expected in literals]


def test_now_has_no_meaning_in_a_pipeline() -> None:
    with pytest.raises(DefinitionError, match="pipeline runs before any query"):
        compile_node(Now(), SparkScope(types={}, columns={}))


def same(found: object, expected: object) -> bool:
    if isinstance(found, float) and isinstance(expected, float):
        return (math.isnan(found) and math.isnan(expected)) or found == expected
    return type(found) is type(expected) and found == expected
