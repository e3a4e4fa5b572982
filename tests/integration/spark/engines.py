"""The evaluation of expressions over rows on both engines, and the comparison of their results."""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import polars as pl
from pyspark.sql import Row, SparkSession

from caraway.dataplane.streams.spark.codec import name
from caraway.dataplane.streams.spark.expressions import SparkScope, compile_with_failure
from caraway.dataplane.streams.spark.types import row_type
from caraway.dtypes.types import (
    DataType,
    DatetimeType,
    DateType,
    DecimalType,
    FloatType,
    ListType,
    MapType,
    StructType,
)
from caraway.dtypes.values import verify
from caraway.errors import CarawayError, InvalidInputError
from caraway.expr.inference import infer, operand_type
from caraway.expr.nodes import Node
from caraway.expr.polars.compiler import compile_as
from caraway.expr.polars.values import polars_type, to_polars
from caraway.expr.printer import print_node
from caraway.expr.references import columns_of


@dataclass(frozen=True)
class Failure:
    """The result of a row at which the evaluation fails; all failures are equal."""

    reason: str = field(compare=False)


@dataclass(frozen=True)
class Batch:
    """Some expressions, and rows in stored form to evaluate them over."""

    schema: Mapping[str, DataType]
    rows: Sequence[Mapping[str, Any]]
    nodes: Sequence[Node]


@dataclass(frozen=True)
class Table:
    """Some expressions, and values of columns, over all of whose combinations they are evaluated."""

    columns: Mapping[str, tuple[DataType, Sequence[Any]]]
    nodes: Sequence[Node]

    def batch(self) -> Batch:
        schema = {column: dtype for column, (dtype, _) in self.columns.items()}
        rows = [
            dict(zip(schema, row, strict=True)) for row in product(*(values for _, values in self.columns.values()))
        ]
        return Batch(schema=schema, rows=rows, nodes=self.nodes)


#: The results of each expression in each row.
Results = list[list[object]]


def by_polars(found: Batch) -> Results:
    """Return the results of the polars compiler: canonical values, or `Failure`."""
    columns = [to_polars(column, [row[column] for row in found.rows], of) for column, of in found.schema.items()]
    frame = pl.DataFrame(columns)
    return [_column_by_polars(node, found.schema, frame) for node in found.nodes]


def _column_by_polars(node: Node, schema: Mapping[str, DataType], frame: pl.DataFrame) -> list[object]:
    dtype = infer(node, schema)
    try:
        computed = frame.with_columns(compile_as(node, dtype, schema).alias("$"))["$"]
    except (pl.exceptions.PolarsError, CarawayError) as error:
        if len(frame) == 1:
            return [Failure(str(error))]
        # polars fails for all rows if it fails for one, so rows are evaluated one by one.
        return [_column_by_polars(node, schema, frame[row])[0] for row in range(len(frame))]
    return [_checked(value, dtype) for value in computed.cast(_plain(dtype)).to_list()]


def _checked(value: Any, dtype: DataType) -> object:
    try:
        verify(dtype)(_as_stored(value, dtype))
    except InvalidInputError as error:
        return Failure(str(error))
    return canonical(value, dtype)


def _as_stored(value: Any, dtype: DataType) -> Any:
    """Return the stored form of a plain value."""
    if value is None:
        return None
    match operand_type(dtype):
        case ListType(of):
            return [_as_stored(item, of) for item in value]
        case MapType(of):
            return {entry["key"]: _as_stored(entry["value"], of) for entry in value}
        case StructType(_, fields):
            return [_as_stored(value[field], of) for field, of in fields]
        case _:
            return value


def by_spark(found: Batch, spark: SparkSession) -> Results:
    """Return the results of Spark, all from one query: canonical values, or `Failure`."""
    scope = SparkScope(types=found.schema, columns={column: name(column) for column in found.schema})
    stored = [tuple(_in_spark(row[column], of) for column, of in found.schema.items()) for row in found.rows]
    frame = spark.createDataFrame(stored, row_type(found.schema.items())).coalesce(1)
    types = [infer(node, found.schema) for node in found.nodes]
    columns = []
    for position, (node, dtype) in enumerate(zip(found.nodes, types, strict=True)):
        outcome = compile_with_failure(node, dtype, scope)
        columns += [outcome.value.alias(f"v{position}"), outcome.failed.alias(f"f{position}")]
    collected = frame.select(*columns).collect()
    return [
        [Failure("") if row[f"f{position}"] else canonical(row[f"v{position}"], dtype) for row in collected]
        for position, dtype in enumerate(types)
    ]


def told(found: Batch, by_polars: Results, by_spark: Results) -> list[str]:
    """Return the differences between the two: for each expression the first row that differs."""
    lines = []
    for node, left, right in zip(found.nodes, by_polars, by_spark, strict=True):
        row = next((row for row in range(len(found.rows)) if left[row] != right[row]), None)
        if row is not None:
            given = {column: found.rows[row][column] for column in columns_of(node)}
            both = f"row {given}\n    polars {left[row]}\n    Spark  {right[row]}"
            lines.append(f"{print_node(node)}\n    {node}\n    {both}")
    return lines


def _in_spark(value: Any, dtype: DataType) -> Any:
    """Return a stored value in the form that PySpark accepts."""
    if value is None:
        return None
    match operand_type(dtype):
        case ListType(of):
            return [_in_spark(item, of) for item in value]
        case MapType(of):
            return {key: _in_spark(item, of) for key, item in value.items()}
        case StructType(_, fields):
            return tuple(_in_spark(item, of) for item, (_, of) in zip(value, fields, strict=True))
        case _:
            return bytearray(value) if isinstance(value, bytes) else value


def _plain(dtype: DataType) -> pl.DataType:
    """Return the polars type whose Python values are in stored form."""
    match operand_type(dtype):
        case DatetimeType() | DateType():
            return pl.Int64()
        case DecimalType():
            return pl.String()
        case ListType(of):
            return pl.List(_plain(of))
        case MapType(of):
            return pl.List(pl.Struct({"key": pl.String(), "value": _plain(of)}))
        case StructType(_, fields):
            return pl.Struct({field: _plain(of) for field, of in fields})
        case other:
            return polars_type(other)


def canonical(value: Any, dtype: DataType) -> object:
    """Return a value of an engine in a form that is equal only bit for bit: floats as their bytes, all NaN alike."""
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


def differing(table: Table, spark: SparkSession) -> list[str]:
    """Return the differences between the engines over a table."""
    found = table.batch()
    return told(found, by_polars(found), by_spark(found, spark))
