"""The stateful steps, run by Java operators over bytes: the as-of join, and steps that depend on an adjacent row.

An operator sees the key, the meta columns and the encoded row; only this module knows the columns of the row.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.codec import KEY, META, OWN, PACKED, PASS_THROUGH, SIDE, Codec, name
from caraway.dataplane.streams.spark.inputs import SETTLE_MS, Inputs, added_columns
from caraway.dataplane.streams.spark.java import from_java, jvm_of, to_java
from caraway.dataplane.streams.spark.marking import scattered
from caraway.dataplane.streams.spark.stream import Stream
from caraway.dataplane.streams.spark.types import row_type
from caraway.dtypes.types import BOOL, optional
from caraway.graph.operators import Changelog, Dedup, Join, JoinKind
from caraway.graph.plan.model import TopicPlan
from caraway.graph.windows import HoppingWindow, SessionWindow

# The Java operator AsOfJoin treats a negative bound as no bound.
_FOREVER = -1
# The Java operator AdjacentRows numbers its output records in the column `which`: 0 is the begin of a version, 1 its
# end (not needed here), and 2 a copy of a version that is sent to the join key in the column `to`.
_BEGIN, _FAN_OUT = 0, 2
# Temporary columns. No Python identifier has a "$", so no user's column has one of these names.
_TO, _IS_FAN_OUT = "$to", "$fan_out"


def joined(left: Stream, right: TopicPlan, join: Join, inputs: Inputs) -> Stream:
    """Join each row of `left` with the version of `right` that holds at its time, and correct it when that changes.

    A keyed `left` is joined at every time, so the output also changes at the times of right versions.

    Args:
        left: The left rows, with the versions of `right` as pass-through rows. These come straight from their topic,
            where all versions of a key are in one partition.
        right: The topic of the right-hand dataset.
        join: The step, with its keys, its kind and the columns of the right side to add.
        inputs: The job's inputs.
    """
    codec = Codec(inputs.session)
    # If left versions may be revised, records of their begins and ends aren't enough. Then each join key that a left
    # key ever had gets copies of all versions of that left key. The same holds if join keys contain the time stamp: the
    # end of a version has the time of the next version, so its join key would differ from that of the version's begin.
    followed = bool(left.keys) and (left.revised or left.timestamp in join.left_on)
    rows = _events(left, _join_key(codec, left, right, join) if followed else None, inputs) if left.keys else left
    added = added_columns(join, right)
    left_row, right_row = row_type(left.columns.items()), row_type(added.items())
    key = _join_key(codec, rows, right, join)
    if followed:
        key = F.coalesce(name(_TO), key)
    own = name(SIDE) == OWN
    rows = scattered(rows, inputs.session)
    packed = _packed(
        rows,
        key,
        codec.encode_row(left_row, [name(column) for column in rows.columns]),
        *([F.when(own, _group_key(codec, rows, rows.keys)).alias("table"), name(_IS_FAN_OUT)] if rows.keys else []),
    )
    # A keyed left side is joined at every time, with the right version that holds then. So `within`, which bounds the
    # time between a left row and its match, doesn't apply to it.
    low_us = _FOREVER if join.within_low_us is None or rows.keys else join.within_low_us
    failed = inputs.failed_before(join)
    java = jvm_of(inputs.session).io.caraway.AsOfJoin.apply(
        to_java(packed),
        inputs.new_operator(),
        rows.leaves,
        inputs.plan.horizon_us,
        low_us,
        0 if rows.keys else join.within_high_us,
        join.how is JoinKind.INNER,
        bool(rows.keys),
        followed,
        failed.batch,
        failed.before_us,
        SETTLE_MS,
    )
    meta = [name(column) for column in META]
    parts = from_java(java, inputs.session).select(
        *meta,
        *_pass_through(own),
        codec.decode_row(F.when(own, F.col("row")), left_row).alias("l"),
        codec.decode_row(F.col("right"), right_row).alias("r"),
    )
    frame = parts.select(
        *meta,
        *(name(column) for column in PASS_THROUGH),
        *(F.col(f"l.`{column}`").alias(column) for column in left.columns),
        *(F.col(f"r.`{column}`").alias(column) for column in added),
    )
    outer = join.how is JoinKind.LEFT
    types = {column: optional(dtype) if outer else dtype for column, dtype in added.items()}
    return replace(rows, frame=frame, columns={**left.columns, **types}, revised=True, leaves=left.leaves + 1)


def _join_key(codec: Codec, rows: Stream, right: TopicPlan, join: Join) -> Column:
    """Return for each left row the Kafka key of the right records that it may match."""
    left_of = dict(zip(join.right_on, join.left_on, strict=True))
    key_row = row_type((key.name, key.dtype) for key in right.schema.keys)
    # The time stamp may be a join key, but is only in a meta column. So the columns come from the scope, which includes
    # it.
    at = rows.scope().columns
    return codec.encode_key(key_row, [at[left_of[column.name]] for column in right.schema.keys])


def _events(keyed: Stream, joined_at: Column | None, inputs: Inputs) -> Stream:
    """Turn each version of a keyed stream into a record at its begin and a delete at its end.

    Each record can then go to the join key of its own version; versions of one key may have different join keys.

    Args:
        keyed: The versions.
        joined_at: The join key of each version, if ends are not enough: each join key then gets all versions of each
            key that ever had a version under it.
        inputs: The job's inputs.
    """
    is_fan_out = (F.col("which") == _FAN_OUT).alias(_IS_FAN_OUT)
    added = [F.col("to").alias(_TO), is_fan_out]
    return _with_adjacent_rows(keyed, keyed.keys, "TABLE", inputs, joined_at=joined_at, added=added)


def aggregate_inputs(keyed: Stream, inputs: Inputs) -> Stream:
    """Turn the versions of a keyed stream into aggregate inputs; each counts until the time of the next version."""
    return replace(_with_adjacent_rows(keyed, keyed.keys, "AGGREGATE_INPUTS", inputs), keys=())


def changelog(keyed: Stream, step: Changelog, inputs: Inputs) -> Stream:
    """Turn each version of a keyed stream into an event at its begin and another one at its end."""
    begins = F.col("which") == _BEGIN
    flag = (begins if step.marks_inserts else ~begins).alias(step.column)
    changes = _with_adjacent_rows(keyed, keyed.keys, "CHANGES", inputs, added=[flag])
    return replace(changes, keys=(), columns={**keyed.columns, step.column: BOOL})


def first(rows: Stream, keys: Sequence[str], inputs: Inputs) -> Stream:
    """Keep the oldest row of each group, as the one version of its key."""
    return replace(_with_adjacent_rows(rows, keys, "FIRST", inputs), keys=tuple(keys))


def deduplicated(rows: Stream, step: Dedup, inputs: Inputs) -> Stream:
    """Keep the last row of each group of duplicates."""
    match step.window:
        case None:
            return _with_adjacent_rows(rows, step.by, "INSTANT", inputs)
        case HoppingWindow(stride_us=stride_us):
            return _with_adjacent_rows(rows, step.by, "TUMBLING", inputs, window_us=stride_us)
        case SessionWindow(gap_us=gap_us):
            return _with_adjacent_rows(rows, step.by, "SESSION", inputs, window_us=gap_us)


def _with_adjacent_rows(
    rows: Stream,
    by: Sequence[str],
    kind: str,
    inputs: Inputs,
    *,
    window_us: int = 0,
    joined_at: Column | None = None,
    added: Sequence[Column] = (),
) -> Stream:
    """Run `io.caraway.AdjacentRows`, whose output for a row of a group depends on the adjacent row of the group.

    Args:
        rows: The rows.
        by: The columns by which they are grouped.
        kind: The name of an `io.caraway.AdjacentRowState.Kind`.
        inputs: The job's inputs.
        window_us: The length of the kind's buckets or of its gap.
        joined_at: The join key of each row, if the operator sends copies of versions to join keys.
        added: Columns to add to those of the rows, made from the operator's columns `which` and `to`.
    """
    codec = Codec(inputs.session)
    rows = scattered(rows.with_pass_through(), inputs.session)
    row = row_type(rows.columns.items())
    own = name(SIDE) == OWN
    packed = _packed(
        rows,
        _group_key(codec, rows, by),
        codec.encode_row(row, [name(column) for column in rows.columns]),
        *([F.when(own, joined_at).alias("joined")] if joined_at is not None else []),
    )
    java = jvm_of(inputs.session).io.caraway.AdjacentRows.apply(
        to_java(packed),
        inputs.new_operator(),
        kind,
        window_us,
        inputs.plan.horizon_us,
        joined_at is not None,
        SETTLE_MS,
    )
    parts = from_java(java, inputs.session).select(
        *(name(column) for column in META),
        *_pass_through(own),
        F.col("which"),
        F.col("to"),
        codec.decode_row(F.when(own, F.col("row")), row).alias("r"),
    )
    columns = [F.col(f"r.`{column}`").alias(column) for column in rows.columns]
    return replace(rows, frame=parts.select(*rows.meta(), *columns, *added), revised=True)


def _group_key(codec: Codec, rows: Stream, by: Sequence[str]) -> Column:
    """Return the encoded key of each row's group; equal values get equal bytes."""
    key_row = row_type((column, rows.types[column]) for column in by)
    return codec.encode_key(key_row, [rows.scope().columns[column] for column in by])


def _pass_through(own: Column) -> list[Column]:
    """Return the pass-through columns of an operator's output, where column `row` has the packed row unless `own`."""
    return [name(SIDE), name(KEY), F.when(~own, F.col("row")).alias(PACKED)]


def _packed(rows: Stream, key: Column, row: Column, *further: Column) -> DataFrame:
    """Return the columns that the operators read, in their order; pass-through rows have a key and bytes already."""
    own = name(SIDE) == OWN
    return rows.frame.select(
        name(SIDE).alias("side"),
        F.when(own, key).otherwise(name(KEY)).alias("key"),
        *(name(column) for column in META),
        F.when(own, row).otherwise(name(PACKED)).alias("row"),
        *further,
    )
