"""Tests that a row at a time has polars's results, bit for bit, and fails where polars does."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from polars.exceptions import PolarsError

from caraway.dtypes.types import BOOL, DATETIME, FLOAT, INT, STRING, DataType, MapType, optional
from caraway.errors import InvalidInputError
from caraway.expr import Expr, col, lit, when
from caraway.expr.inference import infer
from caraway.expr.nodes import NODE_TYPES, DatePart, Literal, Node, TimeUnit
from caraway.expr.polars.compiler import compile_as
from caraway.expr.polars.values import from_polars, to_polars
from caraway.expr.references import columns_of
from caraway.expr.scalars.compiler import compile_scalar
from caraway.expr.scalars.scope import NOW, compile_node
from tests.effort import examples
from tests.unit.expr.polars_results import ROW, same
from tests.unit.expr.typed_nodes import SCHEMA, any_expression, rows

AT = 1_700_000_000_123_456
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Refused:
    """The outcome of an evaluation that fails; the text names the value."""

    reason: str


def by_polars(node: Node, dtype: DataType, row: dict[str, Any], schema: dict[str, DataType]) -> Any:
    columns = [to_polars(name, [row[name]], schema[name]) for name in columns_of(node)]
    frame = pl.DataFrame([pl.Series(ROW, [0], dtype=pl.Int64), *columns])
    try:
        found = frame.with_columns(compile_as(node, dtype, schema, now=AT).alias("result"))["result"]
    except (InvalidInputError, PolarsError) as error:
        return Refused(str(error))
    return from_polars(found, dtype)[0]


def by_scalars(node: Node, dtype: DataType, row: dict[str, Any], schema: dict[str, DataType]) -> Any:
    scalar = compile_scalar(node, dtype, schema)
    if scalar is None:
        return None
    try:
        return scalar({**row, NOW: AT})
    except InvalidInputError as error:
        return Refused(str(error))


def agree(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, Refused) or isinstance(theirs, Refused):
        return isinstance(ours, Refused) and isinstance(theirs, Refused) and ours.reason in theirs.reason
    return same(ours, theirs)


def has_form(node: Node) -> bool:
    return compile_scalar(node, infer(node, SCHEMA), SCHEMA) is not None


@st.composite
def cases(draw: st.DrawFn) -> tuple[Node, Rows]:
    """Draw an expression, and rows of the columns that it refers to."""
    node = draw(any_expression())
    return node, draw(st.lists(rows(columns_of(node)), min_size=1, max_size=3))


@settings(max_examples=examples(300))
@given(case=cases())
@example(case=((col("i") // -1).node, [{"i": -(2**63)}]))
@example(case=((-col("i")).node, [{"i": -(2**63)}]))
@example(case=(col("s").str.lower().node, [{"s": "ΑΣ"}, {"s": "ẞ"}]))
@example(case=((col("f") % 0.1).node, [{"f": 1.1}]))
@example(case=((col("i").num.sqrt() / 0).node, [{"i": 2}]))
@example(case=(col("lf").list.min().node, [{"lf": [-0.0]}]))
def test_a_row_gives_what_polars_gives(case: tuple[Node, Rows]) -> None:
    node, given_rows = case
    if not has_form(node):
        return
    dtype = infer(node, SCHEMA)
    for row in given_rows:
        ours, theirs = by_scalars(node, dtype, row, SCHEMA), by_polars(node, dtype, row, SCHEMA)
        assert agree(ours, theirs), (str(Expr(node)), dtype, row, ours, theirs)


NAN, INF = float("nan"), float("inf")
FLOATS = [
    NAN,
    INF,
    -INF,
    0.0,
    -0.0,
    0.1,
    0.5,
    -0.5,
    1.5,
    -2.5,
    14.0,
    10.0,
    1e-5,
    9.99e-6,
    1e15,
    1e16,
    2.0**53,
    2.0**63,
    5e-324,
]
INTS = [0, 1, -1, 2, -7, 7, 10, 2**53 + 1, 2**62, 2**63 - 1, -(2**63) + 1, -(2**63)]
# The instants reach from before Python's calendar to after it.
INSTANTS = [0, -1, 1, 86_400_000_000 - 1, -86_400_000_001, 1_709_164_800_000_000, -62_135_596_800_000_001]
INSTANTS += [253_402_300_800_000_000, -(2**62), 2**62]
F, G, N, M, T, U = (col(name) for name in "fgijtu")
OF_FLOATS = [
    -F,
    F.abs(),
    F.ceil(),
    F.round(),
    F.round(2),
    F.num.floor(),
    F.num.to_string(),
    F.num.is_nan(),
    F.num.sqrt(),
]
OF_FLOATS += [F.num.is_infinite(), F.num.log(base=10.0), F.num.log(), F.num.sin(), F.num.arcsin(), F.isnull()]
OF_PAIRS = [F + G, F - G, F * G, F / G, F // G, F % G, F == G, F != G, F < G, F <= G, F > G, F >= G, F.num.pow(G)]
OF_INTS = [-N, N.abs(), N.round(1), N.num.to_string(), N.num.sqrt()]
OF_INT_PAIRS = [N + M, N - M, N * M, N / M, N // M, N % M, N == M, N < M, N >= M]
OF_INSTANTS = [getattr(T.dt, unit) for unit in ("year", "month", "day", "hour", "minute", "second")]
OF_INSTANTS += [T.dt.since_epoch(unit) for unit in ("day", "year", "microsecond")]
OF_INSTANT_PAIRS = [T.dt.since(U, unit="week"), T < U, T == U]

TABLES = [
    *[(expr, {"f": FLOATS}) for expr in OF_FLOATS],
    *[(expr, {"f": FLOATS, "g": FLOATS}) for expr in OF_PAIRS],
    *[(expr, {"i": INTS}) for expr in OF_INTS],
    *[(expr, {"i": INTS, "j": INTS}) for expr in OF_INT_PAIRS],
    *[(expr, {"t": INSTANTS}) for expr in OF_INSTANTS],
    *[(expr, {"t": INSTANTS, "u": INSTANTS}) for expr in OF_INSTANT_PAIRS],
]
EDGE_TYPES: dict[str, DataType] = {"f": FLOAT, "g": FLOAT, "i": INT, "j": INT, "t": DATETIME, "u": DATETIME}


@pytest.mark.parametrize(("expr", "columns"), TABLES, ids=lambda value: str(value) if isinstance(value, Expr) else "")
def test_the_edges_agree(expr: Expr, columns: dict[str, list[Any]]) -> None:
    """Compare values that random ones seldom meet, and NaN, which they never do."""
    schema = {name: optional(EDGE_TYPES[name]) for name in columns}
    dtype = optional(infer(expr.node, schema))
    scalar = compile_scalar(expr.node, dtype, schema)
    assert scalar is not None
    given_rows = [dict(zip(columns, found, strict=True)) for found in product(*([*c, None] for c in columns.values()))]
    frame = pl.DataFrame([to_polars(name, [row[name] for row in given_rows], schema[name]) for name in columns])
    expected = from_polars(frame.select(compile_as(expr.node, dtype, schema).alias("x"))["x"], dtype)
    for row, theirs in zip(given_rows, expected, strict=True):
        ours = scalar(dict(row))
        assert same(ours, theirs), (row, ours, theirs)


NEVER = when(col("b")).then(col("i").num.pow(lit(-1))).otherwise(lit(0))


def test_what_is_not_chosen_is_refused_all_the_same() -> None:
    """Compare with polars, which evaluates all branches."""
    for row in ({"b": True, "i": 2}, {"b": False, "i": 2}):
        schema: dict[str, DataType] = {"b": BOOL, "i": INT}
        ours, theirs = by_scalars(NEVER.node, INT, row, schema), by_polars(NEVER.node, INT, row, schema)
        assert isinstance(ours, Refused)
        assert agree(ours, theirs)


def test_entries_of_dicts_have_an_order() -> None:
    schema: dict[str, DataType] = {"a": MapType(INT), "b": MapType(INT)}
    for left, right in [({"x": 1, "y": 2}, {"y": 2, "x": 1}), ({"x": 1, "y": 2}, {"x": 1, "y": 2})]:
        row, node = {"a": left, "b": right}, (col("a") == col("b")).node
        assert by_scalars(node, BOOL, row, schema) == by_polars(node, BOOL, row, schema)


def test_zones_are_left_to_polars() -> None:
    """Leave zones to polars, which has tables of its own."""
    node = DatePart(operand=col("t").node, part=TimeUnit.HOUR, timezone="Asia/Tokyo")
    assert compile_scalar(node, INT, SCHEMA) is None
    assert compile_scalar((Expr(node) + 1).node, INT, SCHEMA) is None


@pytest.mark.parametrize("node_type", NODE_TYPES)
def test_every_node_has_a_form(node_type: type) -> None:
    assert compile_node.dispatch(node_type) is not compile_node.dispatch(object)


def test_a_declared_type_widens_ints() -> None:
    scalar = compile_scalar(col("i").node, FLOAT, {"i": INT})
    assert scalar is not None
    assert same(scalar({"i": 1}), 1.0)
    null = compile_scalar(Literal(value=None, dtype=None), optional(STRING), {})
    assert null is not None
    assert null({}) is None
