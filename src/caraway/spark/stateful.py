"""The stateful steps, done by Java operators over bytes: an as-of join, and a keyed dataset as contributions.

An operator sees key, meta columns and the encoded row; what is in a row is known only here.
"""

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the name that everybody knows)
from pyspark.sql import types as spark

from caraway.dtypes.types import optional
from caraway.graph.operators import Join, JoinKind
from caraway.plan.model import TopicPlan
from caraway.spark.codec import KEY, META, PACKED, PASSENGER, SIDE, Codec, name
from caraway.spark.inputs import OWN, Inputs, added_columns
from caraway.spark.java import from_java, jvm_of, to_java
from caraway.spark.stream import Stream
from caraway.spark.types import row_type

_FOREVER = -1


def as_of_join(left: Stream, right: TopicPlan, join: Join, inputs: Inputs) -> Stream:
    """Join each row of `left` with the version of `right` that holds at its time, and correct it when that changes.

    Args:
        left: Keyless stream, with the versions of `right` as passengers. They come straight from their topic, where all
            versions of a key are in one partition.
        right: The topic of the right-hand dataset.
        join: What to join on, how, and which columns of the right side to add.
        inputs: The job's inputs.
    """
    codec = Codec(inputs.session)
    added = added_columns(join, right)
    left_of = dict(zip(join.right_on, join.left_on, strict=True))
    left_row, right_row = row_type(left.columns.items()), row_type(added.items())
    # The key that the right-hand records have on Kafka.
    key_row = row_type((key.name, key.dtype) for key in right.schema.keys)
    # A left row may be joined by its time stamp, which stands in no column of its own.
    at = left.scope().columns
    key = codec.encode_row(key_row, [at[left_of[column.name]] for column in right.schema.keys])
    own = name(SIDE) == OWN
    joined = from_java(
        jvm_of(inputs.session).io.caraway.AsOfJoin.apply(
            to_java(
                _packed(
                    left.frame,
                    name(SIDE),
                    F.when(own, key).otherwise(name(KEY)),
                    F.when(own, _row(codec, left, left_row)).otherwise(name(PACKED)),
                )
            ),
            inputs.new_operator(),
            left.joined + 1,
            inputs.horizon_us,
            _FOREVER if join.within_low_us is None else join.within_low_us,
            join.within_high_us,
            join.how is JoinKind.INNER,
        ),
        inputs.session,
    )
    passengers = left.joined + 1 < len(inputs.joins)
    meta = [name(column) for column in META]
    riding = [name(SIDE), name(KEY), F.when(~own, F.col("row")).alias(PACKED)] if passengers else []
    parts = joined.select(
        *meta,
        *riding,
        codec.decode_row(F.when(own, F.col("row")), left_row).alias("l"),
        codec.decode_row(F.col("right"), right_row).alias("r"),
    )
    frame = parts.select(
        *meta,
        *([name(column) for column in PASSENGER] if passengers else []),
        *(F.col(f"l.`{column}`").alias(column) for column in left.columns),
        *(F.col(f"r.`{column}`").alias(column) for column in added),
    )
    outer = join.how is JoinKind.LEFT
    types = {column: optional(dtype) if outer else dtype for column, dtype in added.items()}
    return replace(
        left,
        frame=frame,
        columns={**left.columns, **types},
        revised=True,
        passengers=passengers,
        joined=left.joined + 1,
    )


def keyed_changelog(keyed: Stream, inputs: Inputs) -> Stream:
    """Turn the versions of a keyed stream into contributions: each counts from its time until the next version's.

    Args:
        keyed: Keyed stream, where all versions of a key come from one partition.
        inputs: The job's inputs.
    """
    codec = Codec(inputs.session)
    row = row_type(keyed.columns.items())
    key_row = row_type((key, keyed.columns[key]) for key in keyed.keys)
    key = codec.encode_row(key_row, [name(column) for column in keyed.keys])
    changes = from_java(
        jvm_of(inputs.session).io.caraway.KeyedChangelog.apply(
            to_java(_packed(keyed.frame, F.lit(OWN), key, _row(codec, keyed, row))),
            inputs.new_operator(),
            inputs.horizon_us,
        ),
        inputs.session,
    )
    meta = [name(column) for column in META]
    parts = changes.select(*meta, codec.decode_row(F.col("row"), row).alias("r"))
    frame = parts.select(*meta, *(F.col(f"r.`{column}`").alias(column) for column in keyed.columns))
    return replace(keyed, frame=frame, keys=(), revised=True)


def _row(codec: Codec, stream: Stream, row: spark.StructType) -> Column:
    return codec.encode_row(row, [name(column) for column in stream.columns])


def _packed(frame: DataFrame, side: Column, key: Column, row: Column) -> DataFrame:
    """Give a frame the columns that the operators read, in their order."""
    return frame.select(side.alias("side"), key.alias("key"), *(name(column) for column in META), row.alias("row"))
