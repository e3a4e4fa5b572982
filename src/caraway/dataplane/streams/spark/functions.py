"""Steps that call users' Python functions, which only jobs in micro-batch mode can.

`caraway.dataplane.streams.functions.children` calls the functions in Spark's Python workers. Only the columns of the
row are sent to a worker, as Arrow arrays, and only the result comes back; meta columns stay in the JVM.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as spark
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type

from caraway.dataplane.streams.functions.calls import UserCall, UserStep
from caraway.dataplane.streams.functions.children import limits_of, run_apart
from caraway.dataplane.streams.spark.codec import TIME, name
from caraway.dataplane.streams.spark.letters import Reason, evaluate
from caraway.dataplane.streams.spark.stream import Stream
from caraway.dataplane.streams.spark.types import spark_type
from caraway.dtypes.types import BOOL, DataType, is_optional
from caraway.graph.operators import AssignFunction, FilterFunction, Input, Transform
from caraway.graph.plan.model import JobPlan
from caraway.process.secrets.port import secret_address

_OUT = "$out"


def verdict(step: FilterFunction, before: Stream, plan: JobPlan, column: str) -> Stream:
    """Add a column that is true if a filter keeps the row."""
    out = _called(step, before, {column: BOOL}, before.puts(), plan)
    return _taken(out, {column: column}, "filter", None, plan)


def assigned(step: AssignFunction, before: Stream, plan: JobPlan, column: str) -> Stream:
    """Add a column with the values of an assigned one."""
    out = _called(step, before, {step.column: step.dtype}, _has_row(before), plan)
    return _taken(out, {column: step.column}, "assign", step.column, plan)


def transformed(step: Transform, before: Stream, plan: JobPlan, columns: Mapping[str, DataType]) -> Stream:
    """Add the columns that a transform makes, under their names after a `$`."""
    out = _called(step, before, columns, _has_row(before), plan)
    return _taken(out, {f"${column}": column for column in columns}, "transform", None, plan)


def _has_row(before: Stream) -> Column:
    """Return the condition that a record has all columns of its row; a retraction or delete may have only the keys.

    The function is called for retractions and deletes with all columns, too, because later steps need the columns that
    it computes: an aggregate finds the group by them, and `explode` the elements.
    """
    required = [
        name(column).isNotNull()
        for column, dtype in before.columns.items()
        if column not in before.keys and not is_optional(dtype)
    ]
    return before.puts() | (before.own() & reduce(lambda a, b: a & b, required, F.lit(True)))


def _called(step: UserStep, before: Stream, result: Mapping[str, DataType], called: Column, plan: JobPlan) -> Stream:
    """Add a struct column of the function's results and, for a row that has none, the message and traceback."""
    schema = before.schema
    fields = [spark.StructField(column, spark_type(dtype)) for column, dtype in result.items()]
    reasons = [spark.StructField(field, spark.StringType()) for field in ("message", "traceback")]
    dtype = spark.StructType([*fields, *reasons])
    packed = UserCall(replace(step, of=Input(dataset="")), schema, tuple(result.items())).packed()
    job = plan.job_id
    arrow, limits, address = to_arrow_type(dtype), limits_of(before.frame.sparkSession), secret_address()

    # PySpark sees by the annotations that the function takes and returns whole columns as Arrow arrays.
    def call(*columns: pa.Array) -> pa.Array:
        return run_apart(packed, arrow, columns[0], columns[1:], limits, job=job, address=address)

    inputs = [name(TIME if column == before.timestamp else column) for column in schema.columns]
    # Spark would call a deterministic function once for each column that is taken out of its result. So the function is
    # declared nondeterministic, and Spark calls it only once.
    function = arrow_udf(call, dtype).asNondeterministic()  # type: ignore[call-overload]
    return replace(before, frame=before.frame.select("*", function(called, *inputs).alias(_OUT)))


def _taken(out: Stream, columns: Mapping[str, str], operator: str, field: str | None, plan: JobPlan) -> Stream:
    message, trace = (F.col(f"`{_OUT}`.`{part}`") for part in ("message", "traceback"))
    reason = Reason(failed=message.isNotNull(), field=field, message=message, traceback=trace)
    computed = {new: F.col(f"`{_OUT}`.`{column}`") for new, column in columns.items()}
    return evaluate(out, computed, [reason], operator, plan)
