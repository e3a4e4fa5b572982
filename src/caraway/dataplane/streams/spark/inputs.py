"""The input of a job: the rows of all of its topics in one stream.

Spark's real-time mode allows no union behind a stateful operator. So the rows of all inputs are in the stream from the
start. The steps process the rows of the first input at once. The others are pass-through rows: encoded, and marked with
another *side*, by which each step lets them pass until a step takes their input in. Inputs are numbered in the order in
which the steps take them in; the number is the side.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from caraway.dataplane.streams.spark.codec import (
    BEGIN,
    BEGIN_NUMBER,
    END,
    END_NUMBER,
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
from caraway.dataplane.streams.spark.marking import is_marker, read_marker
from caraway.dataplane.streams.spark.regrouping import regrouping_joins
from caraway.dataplane.streams.spark.stream import JobRows, Stream
from caraway.dataplane.streams.spark.types import row_type
from caraway.dtypes.types import DATETIME, DataType
from caraway.graph.operators import Input, Join, Operator
from caraway.graph.plan.model import JobPlan, TopicPlan
from caraway.graph.trees import parents

# An operator drops state whose event time is further back than the horizon. The horizon is measured from the greatest
# event time that the operator had seen at least this many milliseconds ago, since one topic or partition may be read
# far ahead of another while a job reads a backlog.
SETTLE_MS = 600_000

# The meta columns that are never null in a record.
NUMBERS = (OP, TIME, INGESTED)

# The left rows of a union are set aside, as pass-through rows, while the steps of the right branch run. Each union
# gives them a side of its own, below this number.
_SET_ASIDE = -2


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of the operator tree, where the rows of a topic enter it: an input, or the right side of a join."""

    dataset: str
    join: Join | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """The bounds of what a failed attempt may have read and sent since the checkpoint on which its job starts again.

    Attributes:
        batch: The number of the first batch after the restart, which reads at least all that the failed attempt read.
        before_us: The instant of the restart, in microseconds: the failed attempt read nothing that was ingested later.
    """

    batch: int
    before_us: int


NO_FAILED_ATTEMPT = FailedAttempt(batch=-1, before_us=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs of a job.

    Attributes:
        session: The Spark session.
        kafka: The records of all topics of the job, in the columns of Spark's Kafka source, and `number`, the number of
            a record in its message.
        plan: The job.
        failed: The attempt before this one, if the job has run before; it may have read more than the checkpoint says.
        marked: True if there are markers among Kafka's records, which all steps let pass.
        with_ends: True if there are rows before and behind the records of a block, which all steps let pass.
    """

    session: SparkSession
    kafka: DataFrame
    plan: JobPlan
    failed: FailedAttempt | None = None
    marked: bool = False
    with_ends: bool = False

    def failed_before(self, join: Join) -> FailedAttempt:
        """Return the failed attempt whose rows a join must retract, `NO_FAILED_ATTEMPT` if the join regroups none."""
        return self.failed if self.failed is not None and join in regrouping_joins(self.plan) else NO_FAILED_ATTEMPT

    @property
    def topics(self) -> Mapping[str, TopicPlan]:
        """Return the topic of each dataset by name."""
        return {topic.dataset: topic for topic in self.plan.inputs}

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Return the leaves in the order in which the steps take them in."""
        return leaves_of(self.plan.operator)

    def new_operator(self) -> str:
        """Return a name that no other operator has, not even that of the same job at its next start.

        Java operators share what they keep in memory by this name, and it must not outlive a restart of the job.
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
            # Decoding a record with the schema of another topic fails the query, so each schema is used only for its
            # own side.
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
            # The size check (`caraway.dataplane.streams.spark.sizes`) encodes markers along with rows, and the encoder
            # takes no null in these columns, so markers have 0 there.
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
        """Return the side of each of Kafka's records; a record that several inputs read becomes several rows."""
        of_topic: dict[str, list[int]] = {}
        for side, leaf in enumerate(self.leaves):
            of_topic.setdefault(self.topics[leaf.dataset].name, []).append(side)
        if len(self.leaves) == 1:
            only, number = F.when(is_marker(), F.lit(MARKER)), F.col("number")
            if self.with_ends:
                only = only.when(number == BEGIN_NUMBER, F.lit(BEGIN)).when(number == END_NUMBER, F.lit(END))
            return only.otherwise(F.lit(OWN))
        sides = _by_topic(of_topic)
        return F.explode(F.when(is_marker(), F.array(F.lit(MARKER))).otherwise(sides) if self.marked else sides)

    def take_in(self, job_rows: JobRows) -> Stream:
        """Return the stream of the next input: the steps process its rows from here on."""
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
        """Return the union of two streams, of which `right` was compiled from `set_aside(left)`.

        Identities get the branch as their first byte. So they differ even in `x + x`, and of rows of the same time the
        left ones come first.
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
        """Return the rows of a stream as pass-through rows, for the compilation of the other branch of a union."""
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
    """Return the leaves of a tree in the order in which its steps take them in."""
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
    # The number of inputs that were read before the right branch differs between the unions of a job, so each union has
    # a side of its own.
    return _SET_ASIDE - left.leaves


def _row_of(topic: TopicPlan) -> spark.StructType:
    return row_type((column.name, column.dtype) for column in topic.schema.columns)


def _waiting_row(codec: Codec, record: str, leaf: Leaf, topic: TopicPlan) -> tuple[spark.StructType, list[Column]]:
    """Return the type and the columns of a row that passes through until its leaf is taken in."""
    if leaf.join is None:
        return _row_of(topic), codec.columns(record, name(KEY), topic.schema)
    columns = [
        # A join may add the right row's time stamp, which is a field of the record and not of the row in it.
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
