"""Random typed expressions over columns of every scalar type, and rows for them."""

import math
from typing import Any

from hypothesis import strategies as st

from caraway.dtypes.types import BOOL, DATETIME, FLOAT, INT, STRING, DataType, base_type, is_optional, optional
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

BASES: dict[str, DataType] = {"i": INT, "f": FLOAT, "b": BOOL, "s": STRING, "t": DATETIME}
SCHEMA: dict[str, DataType] = {**BASES, **{f"o{name}": optional(base) for name, base in BASES.items()}}

# Between 1900 and 2100: Python's zone rules and polars' agree there.
INSTANTS = st.integers(-2_208_988_800_000_000, 4_102_444_800_000_000)
EDGE_INTS = st.sampled_from([0, 1, -1, 2, -7, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)])
EDGE_FLOATS = st.sampled_from([0.0, -0.0, 0.5, -2.5, 1e-5, 1e-7, 1e16, 1e300, 5e-324, math.inf, -math.inf, 2.0**63])
# No ß-like letters whose case depends on the Unicode version; these have been stable for long.
TEXTS = st.text(alphabet="aAbBzZ éÉßİıΣσς0.%_\n😀", max_size=6)  # noqa: RUF001 (on purpose)

VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    INT: EDGE_INTS | st.integers(-1000, 1000) | st.integers(-(2**63), 2**63 - 1),
    FLOAT: EDGE_FLOATS | st.floats(allow_nan=False),
    BOOL: st.booleans(),
    STRING: TEXTS,
    DATETIME: INSTANTS,
}

FIXED_UNITS = st.sampled_from([unit for unit in TimeUnit if unit is not TimeUnit.MONTH])
ZONES = st.sampled_from(["UTC", "Asia/Tokyo", "America/New_York", "Asia/Kathmandu"])


def rows() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            name: (st.none() | VALUES[base_type(dtype)]) if is_optional(dtype) else VALUES[base_type(dtype)]
            for name, dtype in SCHEMA.items()
        }
    )


def leaves(base: DataType) -> st.SearchStrategy[Node]:
    names = [name for name, dtype in SCHEMA.items() if base_type(dtype) == base]
    found: st.SearchStrategy[Node] = st.sampled_from([Ref(name=name) for name in names])
    found |= st.builds(lambda value: Literal(value=value, dtype=base), VALUES[base])
    return found | st.just(Now()) if base == DATETIME else found


def expressions(base: DataType, depth: int = 3) -> st.SearchStrategy[Node]:
    """Expressions whose type is `base` or its optional."""
    if depth == 0:
        return leaves(base)
    return leaves(base) | st.deferred(lambda: _grown(base, depth - 1))


NULL = st.just(Literal(value=None, dtype=None))


def _grown(base: DataType, depth: int) -> st.SearchStrategy[Node]:
    def of(wanted: DataType) -> st.SearchStrategy[Node]:
        return expressions(wanted, depth)

    numbers = of(INT) | of(FLOAT)
    found: st.SearchStrategy[Node] = st.builds(FillNullOf, of(base), of(base))
    found |= st.builds(
        lambda branches, otherwise: When(branches=tuple(branches), otherwise=otherwise),
        st.lists(st.tuples(of(BOOL), of(base)), min_size=1, max_size=2),
        st.none() | of(base) | NULL,
    )
    if base in (INT, FLOAT):
        found |= st.builds(lambda e: Unary(op=UnaryOp.NEGATE, operand=e), of(base))
        found |= st.builds(lambda e: NumberCall(function=NumberFunction.ABS, operand=e), of(base))
    if base == INT:
        ops = st.sampled_from([BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.FLOOR_DIV, BinaryOp.MOD])
        found |= st.builds(BinaryOf, ops, of(INT), of(INT))
        functions = st.sampled_from([NumberFunction.CEIL, NumberFunction.FLOOR])
        found |= st.builds(lambda f, e: NumberCall(function=f, operand=e), functions, numbers)
        found |= st.builds(lambda e: Round(operand=e, precision=0), numbers)
        found |= st.builds(lambda e: StringCall(function=StringFunction.LEN, operand=e), of(STRING))
        found |= st.builds(
            lambda e, p, z: DatePart(operand=e, part=p, timezone=z), of(DATETIME), st.sampled_from(TimeUnit), ZONES
        )
        found |= st.builds(lambda a, b, u: Since(operand=a, start=b, unit=u), of(DATETIME), of(DATETIME), FIXED_UNITS)
        found |= st.builds(lambda e, u: SinceEpoch(operand=e, unit=u), of(DATETIME), FIXED_UNITS)
    if base == FLOAT:
        found |= st.builds(BinaryOf, st.sampled_from([BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL]), of(FLOAT), numbers)
        found |= st.builds(BinaryOf, st.just(BinaryOp.DIV), numbers, numbers)
        found |= st.builds(BinaryOf, st.sampled_from([BinaryOp.FLOOR_DIV, BinaryOp.MOD]), numbers, of(FLOAT))
        found |= st.builds(lambda e: NumberCall(function=NumberFunction.SQRT, operand=e), numbers)
        found |= st.builds(lambda e, p: Round(operand=e, precision=p), numbers, st.integers(1, 4))
    if base == BOOL:
        found |= st.builds(IsNullOf, st.one_of([of(other) for other in BASES.values()]))
        found |= st.builds(lambda e: Unary(op=UnaryOp.NOT, operand=e), of(BOOL))
        found |= st.builds(BinaryOf, st.sampled_from([BinaryOp.AND, BinaryOp.OR]), of(BOOL) | NULL, of(BOOL))
        orderings = st.sampled_from([BinaryOp.EQ, BinaryOp.NE, BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE])
        found |= st.builds(BinaryOf, orderings, numbers | NULL, numbers)
        for other in (STRING, DATETIME):
            found |= st.builds(BinaryOf, orderings, of(other), of(other))
        tests = st.sampled_from([NumberFunction.IS_NAN, NumberFunction.IS_INFINITE])
        found |= st.builds(lambda f, e: NumberCall(function=f, operand=e), tests, numbers)
        searches = st.sampled_from([StringFunction.CONTAINS, StringFunction.STARTSWITH, StringFunction.ENDSWITH])
        found |= st.builds(
            lambda f, a, b: StringCall(function=f, operand=a, args=(b,)), searches, of(STRING), of(STRING)
        )
    if base == STRING:
        cases = st.sampled_from([StringFunction.LOWER, StringFunction.UPPER])
        found |= st.builds(lambda f, e: StringCall(function=f, operand=e), cases, of(STRING))
        found |= st.builds(
            lambda a, b: StringCall(function=StringFunction.CONCAT, operand=a, args=(b,)), of(STRING), of(STRING)
        )
        found |= st.builds(lambda e: NumberCall(function=NumberFunction.TO_STRING, operand=e), numbers)
    return found


def BinaryOf(op: BinaryOp, left: Node, right: Node) -> Node:  # noqa: N802 (stands for the class)
    return Binary(op=op, left=left, right=right)


def FillNullOf(operand: Node, fill: Node) -> Node:  # noqa: N802 (stands for the class)
    return FillNull(operand=operand, fill=fill)


def IsNullOf(operand: Node) -> Node:  # noqa: N802 (stands for the class)
    return IsNull(operand=operand)


def any_expression(depth: int = 3) -> st.SearchStrategy[Node]:
    return st.one_of([expressions(base, depth) for base in BASES.values()])
