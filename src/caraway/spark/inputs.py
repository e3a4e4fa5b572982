"""What the leaves of an operator tree read: one stream of all topics of a job.

In real-time mode Spark takes no union behind a stateful operator. So the right-hand rows of all joins are in the stream
from the start, as passengers: rows of another *side*, encoded, which each step lets pass until their join takes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that everybody knows)

from caraway.dtypes.types import DATETIME, DataType
from caraway.graph.operators import Join, Operator
from caraway.graph.trees import parents
from caraway.plan.model import TopicPlan
from caraway.spark.codec import KEY, META, OFFSET, PACKED, SIDE, Codec, name
from caraway.spark.stream import Stream
from caraway.spark.types import row_type

# The side of the rows that the steps are about; the right-hand rows of the first join have 1, those of the second 2.
OWN = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs of a job.

    Attributes:
        session: The Spark session.
        kafka: Kafka's columns of all topics of the job.
        topics: The topic of each dataset by name.
        joins: The joins of the tree, in the order in which a row passes them.
        job_id: Name of the job, for messages and for the names of its operators.
        horizon_us: How late a record may come and still correct what depends on it, in microseconds.
    """

    session: SparkSession
    kafka: DataFrame
    topics: Mapping[str, TopicPlan]
    joins: tuple[Join, ...]
    job_id: str
    horizon_us: int

    def new_operator(self) -> str:
        """Return a name that no other operator has, not even that of the same job at its next start.

        What an operator keeps in memory beside its state must begin anew when the job does.
        """
        return f"{self.job_id}/{uuid4()}"

    def read(self, dataset: str) -> Stream:
        """Return the rows of a dataset, and with them the right-hand rows of all joins."""
        topic = self.topics[dataset]
        codec = Codec(self.session)
        frame = self._united(codec, topic) if self.joins else codec.decode_records(self.kafka, topic.schema)
        return Stream(
            frame=frame,
            keys=tuple(column.name for column in topic.schema.keys),
            columns={column.name: column.dtype for column in topic.schema.columns},
            timestamp=topic.schema.timestamp,
            revised=topic.revised,
            passengers=bool(self.joins),
        )

    def _united(self, codec: Codec, topic: TopicPlan) -> DataFrame:
        sides = [topic, *(self.topics[join.right] for join in self.joins)]
        of_topic: dict[str, list[int]] = {}
        for side, plan in enumerate(sides):
            of_topic.setdefault(plan.name, []).append(side)
        kafka = self.kafka.select("*", F.explode(_by_topic(of_topic)).alias(SIDE))
        records = [
            # Only the record's own side may decode it.
            F.when(name(SIDE) == side, codec.record(plan.schema)).alias(f"r{side}")
            for side, plan in enumerate(sides)
        ]
        parts = kafka.select(name(SIDE), F.col("key").alias(KEY), F.col("offset").alias(OFFSET), *records)
        fields = [part.removeprefix("$") for part in META]
        meta = [
            name(part)
            if part == OFFSET
            else F.coalesce(*(F.col(f"r{s}.{field}") for s in range(len(sides)))).alias(part)
            for part, field in zip(META, fields, strict=True)
        ]
        packed = F.lit(None).cast("binary")
        for side, join in enumerate(self.joins, start=1):
            row = codec.encode_row(
                row_type(added_columns(join, sides[side]).items()),
                [_right_column(f"r{side}", column, sides[side]) for column in join.fields],
            )
            packed = F.when(name(SIDE) == side, row).otherwise(packed)
        own = [F.col(f"r{OWN}.row.`{column.name}`").alias(column.name) for column in topic.schema.columns]
        return parts.select(*meta, name(SIDE), name(KEY), packed.alias(PACKED), *own)


def joins_of(step: Operator) -> tuple[Join, ...]:
    """List the joins of a tree in the order in which a row passes them."""
    before = tuple(join for parent in parents(step) for join in joins_of(parent))
    return (*before, step) if isinstance(step, Join) else before


def added_columns(join: Join, right: TopicPlan) -> dict[str, DataType]:
    """Return the columns that a join adds, with their types in the right-hand dataset."""
    types = {column.name: column.dtype for column in right.schema.columns} | {right.schema.timestamp: DATETIME}
    return {field: types[field] for field in join.fields}


def _right_column(record: str, column: str, right: TopicPlan) -> Column:
    # The right-hand time stamp is a column like any other here.
    return F.col(f"{record}.time") if column == right.schema.timestamp else F.col(f"{record}.row.`{column}`")


def _by_topic(sides: Mapping[str, list[int]]) -> Column:
    of_topic = F.lit(None)
    for topic, numbers in sides.items():
        of_topic = F.when(F.col("topic") == topic, F.array(*(F.lit(number) for number in numbers))).otherwise(of_topic)
    return of_topic
