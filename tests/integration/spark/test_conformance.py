"""Tests that Spark has the same results as polars, bit for bit, for random expressions of all nodes over random rows.

A query takes seconds on Spark, so an example is a batch of some rows and many expressions, all in one query. A
difference is narrowed down to the smallest subexpression that differs.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from caraway.dtypes.types import FLOAT
from caraway.errors import DefinitionError
from caraway.expr.inference import infer_nullable
from caraway.expr.nodes import ListFilter, ListMap, Literal, Log, Node, Now, NumberCall, NumberFunction, Power, Ref
from caraway.expr.printer import print_node
from caraway.expr.references import children, walk
from tests.integration.spark.engines import Batch, by_polars, by_spark, told
from tests.unit.expr.typed_nodes import SCHEMA, any_expression, rows

ROWS, EXPRESSIONS, DEPTH = 24, 40, 4

ROUNDING = "Java and C round it differently in the last place"

#: The nodes whose results differ between the engines, and which random expressions therefore don't have.
DIFFERENT: Mapping[object, str] = {
    NumberFunction.SIN: ROUNDING,
    NumberFunction.COS: ROUNDING,
    NumberFunction.TAN: ROUNDING,
    NumberFunction.ARCSIN: ROUNDING,
    NumberFunction.ARCCOS: ROUNDING,
    NumberFunction.ARCTAN: ROUNDING,
    Log: ROUNDING,
    Power: ROUNDING + ", but for powers of ints, which tests/integration/spark/test_expression_tables.py has",
}
#: The nodes that random expressions don't have; now() is the time of a query, and has no meaning in a pipeline.
WITHOUT = {*DIFFERENT, Now}


def drawn(strategy: st.SearchStrategy[Any], number: int, start: int) -> list[Any]:
    """Draw so many examples, the same for the same start. Hypothesis doesn't shrink them; `differences` does."""
    found: list[Any] = []

    @seed(start)
    @settings(max_examples=number, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(value=strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found


def batch(start: int) -> Batch:
    nodes = [node for node in drawn(any_expression(depth=DEPTH, without=WITHOUT), EXPRESSIONS, start) if typed(node)]
    return Batch(schema=SCHEMA, rows=drawn(rows(), ROWS, start), nodes=nodes)


def typed(node: Node) -> bool:
    """Return whether an expression has a type and a meaning in a pipeline."""
    try:
        return infer_nullable(node, SCHEMA) is not None and not any(isinstance(inner, Now) for inner in walk(node))
    except DefinitionError:
        # The generator uses a restricted int as an int, even if it can't be widened there.
        return False


def below(node: Node) -> Iterator[Node]:
    """Yield the node and all nodes below it, without the bodies of lambdas, which have no meaning outside."""
    yield node
    for inner in [node.operand] if isinstance(node, (ListMap, ListFilter)) else children(node):
        yield from below(inner)


def differences(found: Batch, spark: SparkSession) -> list[str]:
    """Return the smallest expressions that differ, with a row where they do."""
    results = zip(found.nodes, by_polars(found), by_spark(found, spark), strict=True)
    wrong = [node for node, left, right in results if left != right]
    if not wrong:
        return []
    parts = {print_node(inner): inner for node in wrong for inner in below(node) if typed(inner)}
    smaller = Batch(schema=found.schema, rows=found.rows, nodes=sorted(parts.values(), key=_size))
    lines = told(smaller, by_polars(smaller), by_spark(smaller, spark))
    # An expression that contains another one that differs adds nothing.
    printed = [line.split("\n")[0] for line in lines]
    return [line for at, line in enumerate(lines) if not any(inner in printed[at] for inner in printed[:at])]


def _size(node: Node) -> int:
    return len(print_node(node))


_MORE = pytest.mark.full(reason="ten seconds of a processor each; one batch is in each run")


@pytest.mark.parametrize("start", [0, *(pytest.param(start, marks=_MORE) for start in range(1, 8))])
def test_spark_gives_what_polars_gives(start: int, spark: SparkSession) -> None:
    wrong = differences(batch(start), spark)
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong)


X = Ref(name="x")
ANGLES = [0.0123 * k for k in range(-3000, 3000)] + [1e-300, 1e22, 3.7e5, 2.0**40 + 0.5]
PARTS = [k / 300 for k in range(-299, 300)]
POSITIVE = [0.37 * k + 1e-3 for k in range(600)]

DIFFERING: Mapping[object, tuple[Node, list[float]]] = {
    **{
        function: (NumberCall(function=function, operand=X), values)
        for function, values in [
            (NumberFunction.SIN, ANGLES),
            (NumberFunction.COS, ANGLES),
            (NumberFunction.TAN, ANGLES),
            (NumberFunction.ARCSIN, PARTS),
            (NumberFunction.ARCCOS, PARTS),
            (NumberFunction.ARCTAN, ANGLES),
        ]
    },
    Log: (Log(operand=X), POSITIVE),
    Power: (Power(operand=X, exponent=Literal(value=-3.7, dtype=FLOAT)), POSITIVE),
}
EDGES = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, math.inf, -math.inf, 1e308, 5e-324]


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_differs_does_so_in_the_last_place_only(what: object, spark: SparkSession) -> None:
    """Check that each node in the table differs by at most two units in the last place, and by more than none."""
    node, values = DIFFERING[what]
    found = Batch(schema={"x": FLOAT}, rows=[{"x": value} for value in values], nodes=[node])
    polars, of_spark = by_polars(found)[0], by_spark(found, spark)[0]
    apart = [
        abs(left[0] - right[0]) / math.ulp(left[0])
        for left, right in zip(polars, of_spark, strict=True)
        if isinstance(left, tuple) and isinstance(right, tuple)
    ]
    assert len(apart) == len(values)
    assert 0 < max(apart) <= 2


def test_what_differs_agrees_at_the_edges(spark: SparkSession) -> None:
    """Check that zeros keep their sign, and that infinities and NaN occur where they do in C."""
    nodes: list[Node] = [node for node, _ in DIFFERING.values() if isinstance(node, NumberCall)]
    nodes = [node for node in nodes if node.function is not NumberFunction.TAN]  # type: ignore[union-attr]
    nodes += [Log(operand=X, base=base) for base in (None, 2.0, 1.0, 0.0, -1.0)]
    nodes += [
        Power(operand=X, exponent=Literal(value=value, dtype=FLOAT)) for value in (0.0, -0.0, math.inf, -math.inf)
    ]
    nodes += [Power(operand=X, exponent=Literal(value=value, dtype=FLOAT)) for value in (1.0, -1.0, 2.0, 3.0, 0.5)]
    found = Batch(schema={"x": FLOAT}, rows=[{"x": value} for value in EDGES], nodes=nodes)
    wrong = [
        (print_node(node), value, left, right)
        for node, lefts, rights in zip(nodes, by_polars(found), by_spark(found, spark), strict=True)
        for value, left, right in zip(EDGES, lefts, rights, strict=True)
        if left != right and not _close(left, right)
    ]
    assert not wrong


def _close(left: object, right: object) -> bool:
    if not isinstance(left, tuple) or not isinstance(right, tuple):
        return False
    return bool(abs(left[0] - right[0]) <= 2 * math.ulp(left[0]) and left[0] != 0)
