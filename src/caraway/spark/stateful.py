"""The stateful steps, done by Java operators over bytes: an as-of join, and a keyed dataset as contributions.

An operator sees key, meta columns and the encoded row; what is in a row is known only here.
"""

from dataclasses import replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that everybody knows)

from caraway.dtypes.types import DATETIME, DataType, optional
from caraway.graph.operators import Join, JoinKind
from caraway.spark.codec import META, TIME, Codec, name
from caraway.spark.java import from_java, jvm_of, to_java
from caraway.spark.stream import Stream
from caraway.spark.types import row_type

LEFT, RIGHT = 0, 1
_FOREVER = -1


def as_of_join(
    left: Stream, right: Stream, join: Join, *, session: SparkSession, operator: str, horizon_us: int
) -> Stream:
    """Join each row of `left` with the version of `right` that holds at its time, and correct it when that changes.

    Args:
        left: Keyless stream.
        right: Keyed stream, straight from its topic, where all versions of a key are in one partition.
        join: What to join on, how, and which columns of the right side to add.
        session: The Spark session.
        operator: Name under which the operator keeps track of time.
        horizon_us: How late a record may come and still correct results, in microseconds.
    """
    codec = Codec(session)
    # All columns of a right row that the join adds: its time stamp is a column like any other here.
    available = {**{c: (name(c), t) for c, t in right.columns.items()}, right.timestamp: (name(TIME), DATETIME)}
    added: dict[str, tuple[Column, DataType]] = {field: available[field] for field in join.fields}
    left_of = dict(zip(join.right_on, join.left_on, strict=True))
    left_row, right_row = row_type(left.columns.items()), row_type((f, t) for f, (_, t) in added.items())
    key_row = row_type((key, right.columns[key]) for key in right.keys)

    left_rows = _packed(
        left.frame,
        LEFT,
        codec.encode_row(key_row, [name(left_of[key]) for key in right.keys]),
        codec.encode_row(left_row, [name(column) for column in left.columns]),
    )
    right_rows = _packed(
        right.frame,
        RIGHT,
        codec.encode_row(key_row, [name(key) for key in right.keys]),
        codec.encode_row(right_row, [column for column, _ in added.values()]),
    )
    joined = from_java(
        jvm_of(session).io.caraway.AsOfJoin.apply(
            to_java(left_rows.unionAll(right_rows)),
            operator,
            horizon_us,
            _FOREVER if join.within_low_us is None else join.within_low_us,
            join.within_high_us,
            join.how is JoinKind.INNER,
        ),
        session,
    )
    parts = joined.select(
        *(name(column) for column in META),
        codec.decode_row(F.col("left"), left_row).alias("l"),
        codec.decode_row(F.col("right"), right_row).alias("r"),
    )
    frame = parts.select(
        *(name(column) for column in META),
        *(F.col(f"l.`{column}`").alias(column) for column in left.columns),
        *(F.col(f"r.`{column}`").alias(column) for column in added),
    )
    outer = join.how is JoinKind.LEFT
    types = {column: optional(dtype) if outer else dtype for column, (_, dtype) in added.items()}
    return replace(left, frame=frame, columns={**left.columns, **types}, revised=True)


def keyed_changelog(keyed: Stream, *, session: SparkSession, operator: str, horizon_us: int) -> Stream:
    """Turn the versions of a keyed stream into contributions: each counts from its time until the next version's.

    Args:
        keyed: Keyed stream, where all versions of a key come from one partition.
        session: The Spark session.
        operator: Name under which the operator keeps track of time.
        horizon_us: How late a version may come and still be put between others, in microseconds.
    """
    codec = Codec(session)
    row = row_type(keyed.columns.items())
    versions = _packed(
        keyed.frame,
        RIGHT,
        codec.encode_row(row_type((key, keyed.columns[key]) for key in keyed.keys), [name(key) for key in keyed.keys]),
        codec.encode_row(row, [name(column) for column in keyed.columns]),
    )
    changes = from_java(
        jvm_of(session).io.caraway.KeyedChangelog.apply(to_java(versions), operator, horizon_us), session
    )
    meta = [name(column) for column in META]
    parts = changes.select(*meta, codec.decode_row(F.col("row"), row).alias("r"))
    frame = parts.select(*meta, *(F.col(f"r.`{column}`").alias(column) for column in keyed.columns))
    return replace(keyed, frame=frame, keys=(), revised=True)


def _packed(frame: DataFrame, side: int, key: Column, row: Column) -> DataFrame:
    """Give a frame the columns that the operators read, in their order."""
    return frame.select(
        F.lit(side).alias("side"), key.alias("key"), *(name(column) for column in META), row.alias("row")
    )
