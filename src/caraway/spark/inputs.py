"""What the leaves of an operator tree read: one stream of all topics of a job.

In real-time mode Spark takes no union behind a stateful operator. So the rows of all inputs are in the stream from the
start, as pass-through rows: rows of another *side*, encoded, which each step lets pass until it is their turn. Inputs
are numbered in the order in which the steps take them in; the number is the side. The rows of the first one are the
steps' own from the beginning.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that everybody knows)
from pyspark.sql import types as spark

from caraway.dtypes.types import DATETIME, DataType
from caraway.graph.operators import Input, Join, Operator
from caraway.graph.trees import parents
from caraway.plan.model import JobPlan, TopicPlan
from caraway.spark.codec import (
    ID,
    INGESTED,
    KEY,
    MARKER,
    META,
    OFFSET,
    OP,
    OWN,
    PACKED,
    PASS_THROUGH,
    SIDE,
    TIME,
    Codec,
    name,
)
from caraway.spark.marking import is_marker, read_marker
from caraway.spark.regrouping import regrouping_joins
from caraway.spark.stream import JobRows, Stream
from caraway.spark.types import row_type

# How long a time must have been reached before what lies a horizon behind it is forgotten: while a backlog is read, one
# topic or partition may run ahead of another.
SETTLE_MS = 600_000

# Meta columns that every record has.
NUMBERS = (OP, TIME, INGESTED)

# Sides of rows that wait for the other branch of a union; each has one of its own.
_SET_ASIDE = -2


@dataclass(frozen=True, slots=True)
class Leaf:
    """Where a topic comes into the tree: as an input, or as the right side of a join."""

    dataset: str
    join: Join | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """What a job may have done since its checkpoint, before it was started again.

    Attributes:
        batch: The number of its first batch now, which is to have all that was read.
        before_us: When it was started again: nothing that was ingested later has been read.
    """

    batch: int
    before_us: int


NO_FAILED_ATTEMPT = FailedAttempt(batch=-1, before_us=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs of a job.

    Attributes:
        session: The Spark session.
        kafka: Kafka's columns of all topics of the job.
        plan: The job.
        failed: What a failed attempt may have read of which the checkpoint tells nothing; None if the job never ran
            before.
        marked: Whether there are markers among Kafka's records, which the steps are to let pass.
    """

    session: SparkSession
    kafka: DataFrame
    plan: JobPlan
    failed: FailedAttempt | None = None
    marked: bool = False

    @property
    def horizon_us(self) -> int:
        """How late a record may come and still correct what depends on it, in microseconds."""
        return self.plan.horizon_us

    @property
    def settle_ms(self) -> int:
        """How long ago a time must have been reached before it counts for the horizon."""
        return SETTLE_MS

    def failed_before(self, join: Join) -> FailedAttempt:
        """Return what a join must say again, because a failed attempt may have said it otherwise."""
        return self.failed if self.failed is not None and join in regrouping_joins(self.plan) else NO_FAILED_ATTEMPT

    @property
    def topics(self) -> Mapping[str, TopicPlan]:
        """The topic of each dataset by name."""
        return {topic.dataset: topic for topic in self.plan.inputs}

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The inputs in the order in which they are taken in."""
        return leaves_of(self.plan.operator)

    def new_operator(self) -> str:
        """Return a name that no other operator has, not even that of the same job at its next start.

        What an operator keeps in memory beside its state must begin anew when the job does.
        """
        return f"{self.plan.job_id}/{uuid4()}"

    def read(self) -> JobRows:
        """Return the rows of all inputs: those of the first one decoded, the others as pass-through rows."""
        codec, leaves, topics = Codec(self.session), self.leaves, self.topics
        first = topics[leaves[0].dataset]
        if len(leaves) == 1 and not self.marked:
            return JobRows(codec.decode_records(self.kafka, first.schema), 0)
        kafka = self.kafka.select("*", self._side().alias(SIDE))
        records = [
            # Only the record's own side may decode it.
            F.when(name(SIDE) == side, codec.record(topics[leaf.dataset].schema)).alias(f"r{side}")
            for side, leaf in enumerate(leaves)
        ]
        marks = [F.col("value"), F.col("partition")] if self.marked else []
        parts = kafka.select(name(SIDE), F.col("key").alias(KEY), F.col("offset").alias(OFFSET), *records, *marks)
        meta = [
            name(part) if part == OFFSET else _whichever(len(leaves), part.removeprefix("$")).alias(part)
            for part in META
        ]
        if self.marked:
            # A marker is encoded with the rows where a step looks at how long they become.
            meta = [
                F.coalesce(m, F.lit(0)).alias(part) if part in NUMBERS else m
                for part, m in zip(META, meta, strict=True)
            ]
        packed = read_marker() if self.marked else F.lit(None).cast("binary")
        for side, leaf in enumerate(leaves[1:], start=1):
            row = codec.encode_row(*_waiting_row(codec, f"r{side}", leaf, topics[leaf.dataset]))
            packed = F.when(name(SIDE) == side, row).otherwise(packed)
        key = F.coalesce(name(KEY), _whichever(len(leaves), "id")).alias(KEY)
        own = codec.columns("r0", name(KEY), first.schema)
        rows = parts.select(*meta, name(SIDE), key, packed.alias(PACKED), *own)
        return JobRows(rows, 0, copies=1 if self.marked else 0)

    def _side(self) -> Column:
        """Return the side of each of Kafka's records; one that several inputs read becomes several rows."""
        of_topic: dict[str, list[int]] = {}
        for side, leaf in enumerate(self.leaves):
            of_topic.setdefault(self.topics[leaf.dataset].name, []).append(side)
        if len(self.leaves) == 1:
            return F.when(is_marker(), F.lit(MARKER)).otherwise(F.lit(OWN))
        sides = _by_topic(of_topic)
        return F.explode(F.when(is_marker(), F.array(F.lit(MARKER))).otherwise(sides) if self.marked else sides)

    def take_in(self, job_rows: JobRows) -> Stream:
        """Return the stream of the input that is next: its rows are those that the steps are about from here on."""
        topic = self.topics[self.leaves[job_rows.leaf].dataset]
        frame = job_rows.frame
        if job_rows.leaf > 0:
            taken = name(SIDE) == job_rows.leaf
            row = Codec(self.session).decode_row(F.when(taken, name(PACKED)), _row_of(topic))
            frame = frame.select(
                *(name(column) for column in META),
                F.when(taken, F.lit(OWN)).otherwise(name(SIDE)).alias(SIDE),
                name(KEY),
                F.when(~taken, name(PACKED)).alias(PACKED),
                row.alias("r"),
            ).select(
                *(name(column) for column in (*META, *PASS_THROUGH)),
                *(F.col(f"r.`{column.name}`").alias(column.name) for column in topic.schema.columns),
            )
        return Stream(
            frame=frame,
            keys=tuple(column.name for column in topic.schema.keys),
            columns={column.name: column.dtype for column in topic.schema.columns},
            timestamp=topic.schema.timestamp,
            revised=topic.revised,
            passes_through=len(self.leaves) > 1 or self.marked,
            leaves=job_rows.leaf + 1,
            copies=job_rows.copies,
        )

    def unite(self, left: Stream, right: Stream) -> Stream:
        """Return the rows of both sides of a union; `right` was made of `set_aside(left)`.

        Ids begin with the side: so they stay apart, in `x + x` too, and of equal times the left ones come first.
        """
        set_aside = name(SIDE) == _set_aside_side(left)
        row = Codec(self.session).decode_row(F.when(set_aside, name(PACKED)), row_type(left.columns.items()))
        side = F.when(set_aside, F.lit(b"\x00")).when(name(SIDE) == OWN, F.lit(b"\x01"))
        meta = [F.coalesce(F.concat(side, name(ID)), name(ID)).alias(ID) if m == ID else name(m) for m in META]
        columns = [name(column) for column in left.columns]
        parts = right.frame.select(*meta, *(name(column) for column in PASS_THROUGH), *columns, row.alias("$left"))
        frame = parts.select(
            *(name(column) for column in META),
            F.when(set_aside, F.lit(OWN)).otherwise(name(SIDE)).alias(SIDE),
            name(KEY),
            F.when(~set_aside, name(PACKED)).alias(PACKED),
            *(
                F.when(set_aside, F.col(f"`$left`.`{column}`")).otherwise(name(column)).alias(column)
                for column in left.columns
            ),
        )
        return replace(right, frame=frame, columns=left.columns, revised=left.revised or right.revised)

    def set_aside(self, stream: Stream) -> JobRows:
        """Let the rows of a stream wait, while the other branch of a union is made."""
        row = Codec(self.session).encode_row(
            row_type(stream.columns.items()), [name(column) for column in stream.columns]
        )
        own = stream.own()
        frame = stream.frame.select(
            *(name(column) for column in META),
            F.when(own, F.lit(_set_aside_side(stream))).otherwise(name(SIDE)).alias(SIDE),
            F.when(own, name(ID)).otherwise(name(KEY)).alias(KEY),
            F.when(own, row).otherwise(name(PACKED)).alias(PACKED),
        )
        return JobRows(frame, stream.leaves, copies=stream.copies)


def leaves_of(step: Operator) -> tuple[Leaf, ...]:
    """List the inputs of a tree in the order in which its steps take them in."""
    before = tuple(leaf for parent in parents(step) for leaf in leaves_of(parent))
    match step:
        case Input():
            return (Leaf(step.dataset),)
        case Join():
            return (*before, Leaf(step.right, step))
        case _:
            return before


def added_columns(join: Join, right: TopicPlan) -> dict[str, DataType]:
    """Return the columns that a join adds, with their types in the right-hand dataset."""
    types = {column.name: column.dtype for column in right.schema.columns} | {right.schema.timestamp: DATETIME}
    return {field: types[field] for field in join.fields}


def _set_aside_side(left: Stream) -> int:
    # The first input of the right branch tells unions apart.
    return _SET_ASIDE - left.leaves


def _row_of(topic: TopicPlan) -> spark.StructType:
    return row_type((column.name, column.dtype) for column in topic.schema.columns)


def _waiting_row(codec: Codec, record: str, leaf: Leaf, topic: TopicPlan) -> tuple[spark.StructType, list[Column]]:
    """Return type and columns of what is kept of a row while it waits."""
    if leaf.join is None:
        return _row_of(topic), codec.columns(record, name(KEY), topic.schema)
    columns = [
        # The right-hand time stamp is a column like any other here.
        F.col(f"{record}.time") if column == topic.schema.timestamp else F.col(f"{record}.row.`{column}`")
        for column in leaf.join.fields
    ]
    return row_type(added_columns(leaf.join, topic).items()), columns


def _whichever(records: int, part: str) -> Column:
    return F.coalesce(*(F.col(f"r{side}.{part}") for side in range(records)))


def _by_topic(sides: Mapping[str, list[int]]) -> Column:
    of_topic = F.lit(None)
    for topic, numbers in sides.items():
        of_topic = F.when(F.col("topic") == topic, F.array(*(F.lit(number) for number in numbers))).otherwise(of_topic)
    return of_topic
