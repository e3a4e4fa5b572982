"""Records of a job's output that leave together are one message: a block for each partition (docs/inside/records.md).

A message costs the broker and each consumer several microseconds, whatever it contains. No record waits for another
one. In real-time mode a block has what was made of one message of the input, or behind a step with state what was made
of the rows that were waiting for this step together. In a micro-batch, too, and behind a step with state, it has
records that were ingested at one time: an index that sends rows on tells from a message what was known when.
"""

from enum import IntEnum

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.codec import BEGIN, DEAD, END, ID, INGESTED, SIDE, name
from caraway.dataplane.streams.spark.inputs import leaves_of
from caraway.dataplane.streams.spark.java import from_java, jvm_of, to_java
from caraway.dataplane.streams.spark.stream import Stream
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.graph.operators import Operator
from caraway.graph.plan.model import JobPlan, TopicKind
from caraway.graph.plan.steps import state_of
from caraway.graph.trees import parents

# The kinds of rows, as `io.caraway.Blocks` numbers them. The Java class passes on rows of an unknown kind unchanged. So
# it treats rows of the kind `_DEAD`, which only this module knows, like those of `_OTHER`.
_OTHER, _RECORD, _BEGIN, _END, _DEAD = 0, 1, 2, 3, 4


class Way(IntEnum):
    """The ways in which records are gathered (`io.caraway.Blocks`).

    BATCH takes all rows of a task, ENDS those between the ends of a block of the input, and READER those that are made
    before the task would wait for another row: each by itself, if the task reads no rows of other tasks.
    """

    BATCH = 0
    ENDS = 1
    READER = 2


def way_of(plan: JobPlan, *, live: bool) -> Way | None:
    """Return the way in which the records of a job's output are gathered; None if each is a message of its own.

    Records of tables must have a key of their own in Kafka, by which jobs and sinks tell whose row is retracted.
    """
    if plan.output.kind is TopicKind.VERSIONS:
        return None
    if not live:
        return Way.BATCH
    # If a job has one input, and no step sends rows to other tasks, all rows that are made of an input block come
    # before the END row of that block.
    is_alone = len(leaves_of(plan.operator)) == 1 and plan.inputs[0].kind is TopicKind.EVENTS
    return Way.ENDS if is_alone and not _keeps_state(plan.operator, plan) else Way.READER


def _keeps_state(step: Operator, plan: JobPlan) -> bool:
    return bool(state_of(step, plan)) or any(_keeps_state(before, plan) for before in parents(step))


def gathered(
    session: SparkSession,
    plan: JobPlan,
    stream: Stream,
    *,
    key: Column,
    value: Column,
    partition: Column,
    partitions: int,
    way: Way,
) -> DataFrame:
    """Return the messages of a job (`topic`, `key`, `value`, `partition`), given those of its single rows."""
    kind = F.when(stream.puts(), F.lit(_RECORD))
    if stream.passes_through:
        kind = kind.when(name(SIDE) == DEAD, F.lit(_DEAD))
        kind = kind.when(name(SIDE) == BEGIN, F.lit(_BEGIN)).when(name(SIDE) == END, F.lit(_END))
    identity = F.lit(None).cast("binary") if plan.output.schema.keys else F.when(stream.own(), name(ID))
    rows = stream.frame.select(
        kind.otherwise(F.lit(_OTHER)).alias("kind"),
        key.alias("key"),
        value.alias("value"),
        partition.alias("partition"),
        F.coalesce(name(INGESTED), F.lit(0)).alias("ingested"),
        identity.alias("identity"),
    )
    made = from_java(jvm_of(session).io.caraway.Blocks.gathered(to_java(rows), partitions, int(way)), session)
    topic = F.when(F.col("kind") == _DEAD, F.lit(DEAD_LETTERS)).otherwise(F.lit(plan.output.name))
    return made.select(topic.alias("topic"), "key", "value", "partition")
