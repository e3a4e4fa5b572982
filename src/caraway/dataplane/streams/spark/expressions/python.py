"""Nodes that Spark has no exact function for, evaluated in Python by the polars compiler, as in queries.

Jobs in real-time mode can't run Python; the planner finds such nodes by `caraway.expr.engines.needs_python`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BooleanType
from pyspark.sql.types import DataType as SparkType

from caraway.dataplane.streams.spark.expressions.scope import SparkScope, compile_node
from caraway.dataplane.streams.spark.types import spark_type
from caraway.dtypes.types import DataType, ListType, MapType, StructType, base_type, stored_type
from caraway.errors import CarawayError, DefinitionError
from caraway.expr.nodes import JsonExtract, Node, Now, ParseJson
from caraway.expr.polars.compiler import compile_as
from caraway.expr.polars.values import polars_type
from caraway.expr.references import columns_of, walk

_RESULT, _ROWS = "$result", "$rows"


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """An expression with the columns that it reads, as it is pickled for Python workers."""

    node: Node
    dtype: DataType
    schema: tuple[tuple[str, DataType], ...]

    def value(self, *columns: pa.Array) -> pa.Array:
        """Evaluate a batch; a row at which the evaluation fails is null."""
        computed, _ = self._computed(self._frame(columns))
        return computed.cast(_stored(self.dtype)).to_arrow().cast(to_arrow_type(spark_type(self.dtype)))

    def failed(self, *columns: pa.Array) -> pa.Array:
        """Return for each row of a batch whether its evaluation fails."""
        _, failed = self._computed(self._frame(columns))
        return failed.to_arrow()

    def _frame(self, columns: Sequence[pa.Array]) -> pl.DataFrame:
        series = [
            _series(name, column).cast(polars_type(dtype))
            for (name, dtype), column in zip(self.schema, columns, strict=False)
        ]
        # A column of nulls makes the frame as long as the batch, even if the expression refers to no column.
        return pl.DataFrame([_series(_ROWS, pa.nulls(len(columns[0]))), *series])

    def _computed(self, frame: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
        """Return the values of all rows, and for each whether its evaluation failed."""
        expression = compile_as(self.node, self.dtype, dict(self.schema)).alias(_RESULT)
        try:
            computed = frame.with_columns(expression)[_RESULT]
            return computed, pl.repeat(False, len(frame), eager=True)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, CarawayError):
            # polars fails a batch for one row in it, so the batch is halved until that row is alone.
            if len(frame) == 1:
                return pl.Series(_RESULT, [None], dtype=polars_type(self.dtype)), pl.Series([True])
            half = len(frame) // 2
            values, failures = zip(*map(self._computed, (frame[:half], frame[half:])), strict=True)
            return pl.concat(values), pl.concat(failures)


def evaluated(node: Node, scope: SparkScope) -> Column:
    """Return the column of an expression that Python evaluates over the columns that it refers to."""
    evaluation, inputs = _evaluation(node, scope)

    # PySpark sees by the annotations that the function takes and returns whole columns as Arrow arrays.
    def value(*columns: pa.Array) -> pa.Array:
        return evaluation.value(*columns)

    return _apply(value, spark_type(evaluation.dtype), inputs)


# Spark's own readers of JSON accept text that isn't JSON, and lose parts of text that is. So Python evaluates these
# expressions.
compile_node.register(ParseJson, evaluated)
compile_node.register(JsonExtract, evaluated)


def fails_in_python(node: Node, scope: SparkScope) -> Column:
    """Return the column that is true where the evaluation in Python fails."""
    evaluation, inputs = _evaluation(node, scope)

    def failed(*columns: pa.Array) -> pa.Array:
        return evaluation.failed(*columns)

    return _apply(failed, BooleanType(), inputs)


def _evaluation(node: Node, scope: SparkScope) -> tuple[_Evaluation, list[Column]]:
    for inner in walk(node):
        if isinstance(inner, Now):
            compile_node(inner, scope)
    dtype = scope.type_of(node)
    if dtype is None:
        raise DefinitionError("the type of null alone is not known")
    names = columns_of(node)
    evaluation = _Evaluation(node, base_type(dtype), tuple((name, scope.types[name]) for name in names))
    return evaluation, [scope.columns[name] for name in names] or [F.lit(0)]


def _apply(function: Callable[..., pa.Array], dtype: SparkType, inputs: Sequence[Column]) -> Column:
    column: Column = arrow_udf(function, dtype)(*inputs)  # type: ignore[call-overload]
    return column


def _series(name: str, column: pa.Array) -> pl.Series:
    series = pl.from_arrow(column)
    assert isinstance(series, pl.Series)  # noqa: S101 (a table alone makes a frame)
    return series.rename(name)


def _stored(dtype: DataType) -> pl.DataType:
    """Return the polars type of values as Spark stores them (`caraway.dataplane.streams.spark.types`)."""
    match stored_type(dtype):
        case ListType(of):
            return pl.List(_stored(of))
        case MapType(of):
            return pl.Map(pl.String(), _stored(of))
        case StructType(_, fields):
            return pl.Struct({name: _stored(of) for name, of in fields})
        case other:
            return polars_type(other)
