"""The way of markers (`caraway.dataplane.topics.markers`) through a job.

A marker is a pass-through row (`caraway.dataplane.streams.spark.inputs`), which every step lets pass. A stateful step
has several tasks; each task before it sends a copy of the marker to each of them, after the rows that it has sent
there. So when all copies have reached the output, all rows before the marker have reached it, too.

Only jobs in real-time mode pass markers on, since their rows go from task to task one by one and in order. A
micro-batch is sorted by key between tasks, so that a marker could overtake rows.
"""

from dataclasses import replace

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.codec import KEY, MARKER, PACKED, SIDE, name
from caraway.dataplane.streams.spark.java import jvm_of
from caraway.dataplane.streams.spark.stream import Stream
from caraway.dataplane.topics.markers import COPIES_BYTES, MARKER_KEY, MAX_COPIES, STEP_BYTES, job_tag

# A temporary column. No Python identifier has a "$", so no user's column has this name.
_COPY = "$copy"


def is_marker() -> Column:
    """Return the condition that a record from Kafka is a marker."""
    return F.col("key") == F.lit(MARKER_KEY)


def read_marker() -> Column:
    """Return the payload of a marker: its token and the partition from which it was read; null for rows."""
    return F.when(name(SIDE) == MARKER, F.concat(F.col("value"), F.col("partition").cast("binary")))


def scattered(stream: Stream, session: SparkSession) -> Stream:
    """Return a stream with a copy of each marker for each task of the next stateful step."""
    tasks = int(session.conf.get("spark.sql.shuffle.partitions") or 1)
    if not stream.copies or tasks == 1:
        return stream
    marker = name(SIDE) == MARKER
    if stream.copies * tasks > MAX_COPIES:
        return replace(stream, frame=stream.frame.where(~marker), copies=0)
    copies = F.array(
        *(
            F.struct(F.lit(bytes(key)).alias("key"), F.lit(task.to_bytes(STEP_BYTES, "big")).alias("task"))
            for task, key in enumerate(jvm_of(session).io.caraway.Markers.keys(tasks))
        )
    )
    only = F.array(F.lit(None).cast("struct<key:binary,task:binary>"))
    frame = (
        stream.frame.select("*", F.explode(F.when(marker, copies).otherwise(only)).alias(_COPY))
        .withColumn(KEY, F.coalesce(F.col(f"`{_COPY}`.`key`"), name(KEY)))
        .withColumn(PACKED, F.when(marker, F.concat(name(PACKED), F.col(f"`{_COPY}`.`task`"))).otherwise(name(PACKED)))
        .drop(name(_COPY))
    )
    return replace(stream, frame=frame, copies=stream.copies * tasks)


def arrival(stream: Stream, job_id: str) -> Column:
    """Return the value of the arrival records of a job (`caraway.dataplane.topics.markers.Arrival`)."""
    head = stream.copies.to_bytes(COPIES_BYTES, "big") + job_tag(job_id)
    return F.concat(F.lit(head), name(PACKED))


def partitions_of(partitions: int) -> Column:
    """Return the partitions for a record: all for an arrival; null for a row, which Kafka assigns by its key."""
    each = F.array(*(F.lit(partition) for partition in range(partitions)))
    return F.explode(F.when(name(SIDE) == MARKER, each).otherwise(F.array(F.lit(None).cast("int"))))
