"""Spark gives what polars gives, bit for bit: random expressions of all nodes, over random rows.

A query takes seconds on Spark, so an example is a batch: some rows and many expressions, all in one query. What differs
is narrowed down to the smallest subexpression that does.
"""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession

from caraway.dtypes.types import (
    DataType,
    DatetimeType,
    DateType,
    DecimalType,
    FloatType,
    ListType,
    MapType,
    StructType,
    is_optional,
)
from caraway.errors import CarawayError, DefinitionError
from caraway.expr.inference import infer_nullable, operand_type
from caraway.expr.nodes import (
    ListFilter,
    ListMap,
    Log,
    Node,
    Now,
    NumberFunction,
    Power,
)
from caraway.expr.polars_compiler import compile_as
from caraway.expr.polars_values import polars_type, to_polars
from caraway.expr.printer import print_node
from caraway.expr.references import children, columns_of, walk
from caraway.spark.codec import name
from caraway.spark.expressions import Scope, compile_with_failure
from caraway.spark.types import row_type
from tests.effort import examples
from tests.unit.expr.typed_nodes import SCHEMA, any_expression, rows

ROWS, EXPRESSIONS = 24, 40

#: What the two engines can't do alike, and so doesn't stand in random expressions. `test_differences_are_there` holds
#: each of them to it.
DIFFERENT: Mapping[object, str] = {
    **dict.fromkeys(
        [
            NumberFunction.SIN,
            NumberFunction.COS,
            NumberFunction.TAN,
            NumberFunction.ARCSIN,
            NumberFunction.ARCCOS,
            NumberFunction.ARCTAN,
            Log,
            Power,
        ],
        "Java and C round transcendental functions differently in the last place",
    ),
}
#: now() is the time of a query, and has no meaning in a pipeline.
WITHOUT = {*DIFFERENT, Now}


@dataclass(frozen=True)
class Failure:
    """What a row gives at which the evaluation fails; all failures are alike."""

    reason: str = field(compare=False)


@dataclass(frozen=True)
class Batch:
    """Expressions over rows in stored form."""

    rows: Sequence[Mapping[str, Any]]
    nodes: Sequence[Node]


def drawn(strategy: st.SearchStrategy[Any], number: int, start: int) -> list[Any]:
    """Draw so many examples, the same for the same start: shrinking happens here by subexpressions."""
    found: list[Any] = []

    @seed(start)
    @settings(max_examples=number, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(value=strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found


def batch(start: int) -> Batch:
    nodes = [node for node in drawn(any_expression(depth=4, without=WITHOUT), EXPRESSIONS, start) if typed(node)]
    return Batch(rows=drawn(rows(), ROWS, start), nodes=nodes)


def typed(node: Node) -> bool:
    """Tell whether an expression has a type and a meaning in a pipeline."""
    try:
        return infer_nullable(node, SCHEMA) is not None and not any(isinstance(inner, Now) for inner in walk(node))
    except DefinitionError:
        # The generator takes a restricted int for an int also where it can't be widened.
        return False


def type_of(node: Node) -> DataType:
    found = infer_nullable(node, SCHEMA)
    assert found is not None
    return found


def by_polars(found: Batch) -> list[list[object]]:
    """Evaluate each expression for all rows: canonical values, or `Failure`."""
    frame = pl.DataFrame([to_polars(column, [row[column] for row in found.rows], of) for column, of in SCHEMA.items()])
    return [column_by_polars(node, frame) for node in found.nodes]


def column_by_polars(node: Node, frame: pl.DataFrame) -> list[object]:
    dtype = type_of(node)
    try:
        computed = frame.with_columns(compile_as(node, dtype, SCHEMA).alias("$"))["$"]
    except (pl.exceptions.PolarsError, CarawayError) as error:
        if len(frame) == 1:
            return [Failure(str(error))]
        # polars fails for all rows if it does for one.
        return [column_by_polars(node, frame[row])[0] for row in range(len(frame))]
    values = [canonical(value, dtype) for value in computed.cast(plain(dtype)).to_list()]
    return values if is_optional(dtype) else [Failure("null") if value is None else value for value in values]


def by_spark(found: Batch, spark: SparkSession) -> list[list[object]]:
    scope = Scope(types=SCHEMA, columns={column: name(column) for column in SCHEMA})
    stored = [tuple(in_spark(row[column], of) for column, of in SCHEMA.items()) for row in found.rows]
    frame = spark.createDataFrame(stored, row_type(SCHEMA.items())).coalesce(1)
    columns = []
    for position, node in enumerate(found.nodes):
        outcome = compile_with_failure(node, type_of(node), scope)
        columns += [outcome.value.alias(f"v{position}"), outcome.failed.alias(f"f{position}")]
    collected = frame.select(*columns).collect()
    return [
        [Failure("") if row[f"f{position}"] else canonical(row[f"v{position}"], type_of(node)) for row in collected]
        for position, node in enumerate(found.nodes)
    ]


def in_spark(value: Any, dtype: DataType) -> Any:
    """A stored value as PySpark takes it."""
    if value is None:
        return None
    match operand_type(dtype):
        case ListType(of):
            return [in_spark(item, of) for item in value]
        case MapType(of):
            return {key: in_spark(item, of) for key, item in value.items()}
        case StructType(_, fields):
            return tuple(in_spark(item, of) for item, (_, of) in zip(value, fields, strict=True))
        case _:
            return bytearray(value) if isinstance(value, bytes) else value


def plain(dtype: DataType) -> pl.DataType:
    """The polars type whose Python values are stored ones."""
    match operand_type(dtype):
        case DatetimeType() | DateType():
            return pl.Int64()
        case DecimalType():
            return pl.String()
        case ListType(of):
            return pl.List(plain(of))
        case MapType(of):
            return pl.List(pl.Struct({"key": pl.String(), "value": plain(of)}))
        case StructType(_, fields):
            return pl.Struct({field: plain(of) for field, of in fields})
        case other:
            return polars_type(other)


def canonical(value: Any, dtype: DataType) -> object:
    """A value of either engine in a form that is equal only bit for bit: floats by their bytes, all NaN one."""
    if value is None:
        return None
    match operand_type(dtype):
        case FloatType():
            assert isinstance(value, float)
            return "NaN" if math.isnan(value) else (value, struct.pack(">d", value))
        case ListType(of):
            return [canonical(item, of) for item in value]
        case MapType(of):
            entries = value.items() if isinstance(value, dict) else [(item["key"], item["value"]) for item in value]
            return {key: canonical(item, of) for key, item in entries}
        case StructType(_, fields):
            given = value.asDict() if isinstance(value, Row) else value
            return {field: canonical(given[field], of) for field, of in fields}
        case _:
            return bytes(value) if isinstance(value, bytearray) else value


def below(node: Node) -> Iterator[Node]:
    """Yield the node and all below it, but for the bodies of lambdas, which mean nothing outside."""
    yield node
    for inner in [node.operand] if isinstance(node, (ListMap, ListFilter)) else children(node):
        yield from below(inner)


def differences(found: Batch, spark: SparkSession) -> list[str]:
    """Tell the smallest expressions that differ, and where."""
    wrong = [
        node
        for node, left, right in zip(found.nodes, by_polars(found), by_spark(found, spark), strict=True)
        if left != right
    ]
    if not wrong:
        return []
    parts = {print_node(inner): inner for node in wrong for inner in below(node) if typed(inner)}
    narrowed = Batch(rows=found.rows, nodes=sorted(parts.values(), key=lambda inner: len(print_node(inner))))
    told = []
    differing: list[str] = []
    for node, left, right in zip(narrowed.nodes, by_polars(narrowed), by_spark(narrowed, spark), strict=True):
        text = print_node(node)
        if left == right or any(known in text for known in differing):
            continue
        differing.append(text)
        row = next(row for row in range(len(left)) if left[row] != right[row])
        given = {column: found.rows[row][column] for column in columns_of(node)}
        told.append(f"{text}\n    {node}\n    row {given}\n    polars {left[row]}\n    Spark  {right[row]}")
    return told


@pytest.mark.parametrize("start", range(examples(10)))
def test_spark_gives_what_polars_gives(start: int, spark: SparkSession) -> None:
    told = differences(batch(start), spark)
    assert not told, f"{len(told)} differ\n" + "\n".join(told)
