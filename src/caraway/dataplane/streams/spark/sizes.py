"""Rows whose key or value is longer than the topic or the index allows become dead letters."""

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.codec import Codec, name
from caraway.dataplane.streams.spark.letters import Reason, evaluate
from caraway.dataplane.streams.spark.stream import Stream
from caraway.dataplane.topics.codec import MAX_RECORD_BYTES
from caraway.dataplane.topics.keys import MAX_KEY_BYTES, MOST
from caraway.dtypes import types as t
from caraway.graph.plan.model import Column as PlanColumn
from caraway.graph.plan.model import JobPlan

# Measuring a row means encoding it once more, so only rows with long texts are measured. If the texts of a row take
# less than this share of the bound, the row isn't too long: its other columns take some ten bytes each, and fit into
# the rest.
SHARE = 0.5


def within_bounds(stream: Stream, codec: Codec, plan: JobPlan) -> Stream:
    """Return the rows of a stream that a topic and its index can take; the others become dead letters."""
    schema = plan.output.schema
    key, value = codec.encoded(schema)
    reasons = []
    keys = _too_long(schema.keys, key, MAX_KEY_BYTES)
    if keys is not None:
        message = F.concat(F.lit("the key takes "), F.length(key).cast("string"), F.lit(f" bytes; {MOST}"))
        reasons.append(Reason(failed=keys, field=None, message=message))
    values = _too_long(schema.columns, value, MAX_RECORD_BYTES)
    if values is not None:
        message = F.concat(
            F.lit("the row takes "), F.length(value).cast("string"), F.lit(f" bytes, at most {MAX_RECORD_BYTES:,} fit")
        )
        reasons.append(Reason(failed=values, field=None, message=message))
    return evaluate(stream, {}, reasons, "output", plan)


def _too_long(columns: Iterable[PlanColumn], encoded: Column, most: int) -> Column | None:
    """Return the condition that the encoding of columns is longer than `most`; None if it can't be."""
    sizes: list[Column] = []
    nested = False
    for column in columns:
        if _is_text(column.dtype):
            sizes.append(F.coalesce(F.octet_length(name(column.name)), F.lit(0)).cast("long"))
        elif _is_nested(column.dtype):
            nested = True
    exceeds = F.length(encoded) > most
    if nested:
        return exceeds
    if not sizes:
        return None
    return F.when(reduce(Column.__add__, sizes) > int(most * SHARE), exceeds).otherwise(F.lit(False))


def _is_text(dtype: t.DataType) -> bool:
    # A decimal is stored as text too, but it has 28 digits at most.
    is_decimal = isinstance(t.base_type(dtype), t.DecimalType)
    return isinstance(t.stored_type(dtype), (t.StringType, t.BytesType)) and not is_decimal


def _is_nested(dtype: t.DataType) -> bool:
    return isinstance(t.stored_type(dtype), (t.ListType, t.MapType, t.StructType))
