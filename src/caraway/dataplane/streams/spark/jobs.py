"""The compilation of a job's plan, and its start as a streaming query."""

import time
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from caraway.dataplane.streams.spark.archived import Archived, read_archived
from caraway.dataplane.streams.spark.blocks import Way, gathered, way_of
from caraway.dataplane.streams.spark.checkpoints import forget_unfinished, next_batch
from caraway.dataplane.streams.spark.codec import DEAD, MARKER, PACKED, SIDE, Codec, name
from caraway.dataplane.streams.spark.inputs import FailedAttempt, Inputs
from caraway.dataplane.streams.spark.letters import LetterCount
from caraway.dataplane.streams.spark.marking import arrival, partitions_of
from caraway.dataplane.streams.spark.sizes import within_bounds
from caraway.dataplane.streams.spark.steps import compile_step
from caraway.dataplane.topics.credentials import spark_options
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dataplane.topics.erased_keys import ERASURE_KEY
from caraway.dataplane.topics.markers import ARRIVAL_KEY, MARKER_KEY
from caraway.dataplane.topics.positions import TopicEnds
from caraway.graph.plan.model import JobMode, JobPlan, TopicKind

# A micro-batch has at most this many rows, so that a backlog is processed in pieces that fit into memory.
MICRO_BATCH_ROWS = 500_000
# The ingestion time of records is taken from the clock of another machine, which may be ahead by this many seconds. So
# records whose ingestion time is up to this long after a restart are treated as if a failed attempt may have read them.
_CLOCKS_DIFFER_SECONDS = 10.0
# How long a broker holds the fetch request of a job that has read all records, in milliseconds. The broker answers as
# soon as there is a record, so a long time delays nothing. With Kafka's default, 500, some hundred idle jobs keep the
# broker busy.
_FETCH_WAIT_MS = "5000"


class Trigger(StrEnum):
    """The ways to drive a job. All of them work on the same checkpoint."""

    REAL_TIME = "real-time"
    MICRO_BATCH = "micro-batch"
    # The query ends when its micro-batches have processed all that the topics held at its start.
    BACKLOG = "backlog"
    # Like BACKLOG, but the micro-batches process all that the archive held of the topics at the query's start.
    ARCHIVE = "archive"


def trigger_of(mode: JobMode) -> Trigger:
    """Return the trigger of a job of this mode once it is caught up."""
    return Trigger.REAL_TIME if mode is JobMode.REAL_TIME else Trigger.MICRO_BATCH


def compile_job(
    session: SparkSession,
    plan: JobPlan,
    bootstrap_servers: str,
    letters: LetterCount | None = None,
    trigger: Trigger | None = None,
    *,
    failed: FailedAttempt | None = None,
    partitions: int = 1,
    records_per_message: float = 1.0,
    archived: Archived | None = None,
) -> DataFrame:
    """Compile a job to the DataFrame of Kafka records (`topic`, `key`, `value`, `partition`) that it writes.

    `partitions` is the number of partitions of the output topic, and `records_per_message` is that of the inputs. With
    `archived`, the job reads its inputs from the archive instead of from Kafka.
    """
    trigger = trigger or trigger_of(plan.mode)
    codec = Codec(session)
    if archived is None:
        most = max(1, round(MICRO_BATCH_ROWS / records_per_message))
        kafka = _read(session, [topic.name for topic in plan.inputs], trigger, bootstrap_servers, most)
    else:
        kafka = read_archived(session, archived, MICRO_BATCH_ROWS)
    # Only topics of keyless datasets have blocks, which are messages of several records. Splitting the messages of
    # other topics would only cost time.
    has_blocks = any(topic.kind is TopicKind.EVENTS for topic in plan.inputs)
    live = trigger is Trigger.REAL_TIME
    way = way_of(plan, live=live)
    with_ends = way is Way.ENDS
    kafka = codec.split(kafka, with_ends=with_ends) if has_blocks else kafka.withColumn("number", F.lit(0))
    inputs = Inputs(session=session, kafka=kafka, plan=plan, failed=failed, marked=live, with_ends=with_ends)
    result = within_bounds(compile_step(plan.operator, inputs, inputs.read()), codec, plan)
    topic, partition = F.lit(plan.output.name), F.lit(None).cast("int")
    key, value = codec.encoded(plan.output.schema)
    if result.passes_through:
        letter = name(PACKED) if letters is None else letters.counted(name(PACKED))
        own, dead, marker = result.own(), name(SIDE) == DEAD, name(SIDE) == MARKER
        topic = F.when(dead, F.lit(DEAD_LETTERS)).otherwise(topic)
        # The topic of dead letters is compacted, so Kafka keeps only the newest letter of each key. For that reason
        # each content has a key of its own.
        letter_key = F.md5(name(PACKED)).cast("binary")
        key = F.when(own, key).when(marker, F.lit(ARRIVAL_KEY)).when(dead, letter_key)
        value = F.when(own, value).when(dead, letter).when(marker, arrival(result, plan.job_id))
        partition = partitions_of(partitions) if partitions > 1 and result.copies else partition
    if way is not None:
        return gathered(
            session, plan, result, key=key, value=value, partition=partition, partitions=partitions, way=way
        )
    named = {"topic": topic, "key": key, "value": value, "partition": partition}
    return result.frame.select(*(column.alias(part) for part, column in named.items()))


def start_job(
    session: SparkSession,
    plan: JobPlan,
    *,
    bootstrap_servers: str,
    checkpoint: Path,
    checkpoint_interval_seconds: float,
    letters: LetterCount | None = None,
    trigger: Trigger | None = None,
    tasks: int | None = None,
    records_per_message: float = 1.0,
    archived: Archived | None = None,
) -> StreamingQuery:
    """Start a job at the position of its checkpoint, or at the beginning of its topics if there is none.

    Args:
        session: A session of `caraway.dataplane.streams.spark.session`.
        plan: The job; its topics must exist.
        bootstrap_servers: Kafka brokers, `host:port,host:port`.
        checkpoint: A folder that belongs to this job alone.
        checkpoint_interval_seconds: The time between the checkpoints of a job in real-time mode; at least 5.
        letters: Counts the rows that became dead letters (`dead_letters.DEAD_LETTERS`, which must exist).
        trigger: How to drive the job; None means by its mode.
        tasks: The number of tasks of a stateful step; None means the session's number. A job with a checkpoint keeps
            the number that it began with.
        records_per_message: The average number of records in a message of its topics, for the size of micro-batches.
        archived: The archive of its topics, for `Trigger.ARCHIVE`.

    Raises:
        pyspark.errors.PySparkException: Spark refuses the query.
    """
    # An earlier attempt may have sent records if there is a folder with this checkpoint's name, or with that name and a
    # suffix: its checkpoint may have been renamed because it was damaged, or may be removed below.
    restarted = any(checkpoint.parent.glob(f"{checkpoint.name}*"))
    forget_unfinished(checkpoint)
    before_us = round((time.time() + _CLOCKS_DIFFER_SECONDS) * 1_000_000)
    failed = FailedAttempt(batch=next_batch(checkpoint), before_us=before_us) if restarted else None
    trigger = trigger or trigger_of(plan.mode)
    session = session if tasks is None else _dividing(session, tasks)
    output = plan.output.name
    partitions = len(TopicEnds(bootstrap_servers).ends([output]).get(output, {0: 0}))
    writer = (
        compile_job(
            session,
            plan,
            bootstrap_servers,
            letters,
            trigger,
            failed=failed,
            partitions=partitions,
            records_per_message=records_per_message,
            archived=archived,
        )
        .writeStream.queryName(plan.job_id)
        .format("kafka")
        .options(**spark_options(bootstrap_servers))
        # With acks=all, Kafka confirms a record only when all in-sync replicas have it. Kafka's producer is idempotent
        # by default, which also needs acks=all: a record that the producer sends again isn't written twice.
        .option("kafka.acks", "all")
        .option("kafka.linger.ms", "0")
        .option("checkpointLocation", str(checkpoint))
        .outputMode("update")
    )
    match trigger:
        case Trigger.REAL_TIME:
            # The type hints of PySpark lack this argument.
            return writer.trigger(realTime=f"{checkpoint_interval_seconds:.3f} seconds").start()  # type: ignore[call-overload,no-any-return]
        case Trigger.MICRO_BATCH:
            return writer.trigger(processingTime="0 seconds").start()
        case Trigger.BACKLOG | Trigger.ARCHIVE:
            return writer.trigger(availableNow=True).start()


@lru_cache(maxsize=16)
def _dividing(session: SparkSession, tasks: int) -> SparkSession:
    """Return a session on the same Spark context in which stateful steps have `tasks` tasks.

    The session is cached for each number of tasks, because Spark never removes a session's listener from its event bus.
    """
    own = session.newSession()
    own.conf.set("spark.sql.shuffle.partitions", str(tasks))
    return own


def _read(
    session: SparkSession, topics: Sequence[str], trigger: Trigger, bootstrap_servers: str, most: int
) -> DataFrame:
    """Return the messages of some topics, in a micro-batch `most` of them."""
    reader = (
        session.readStream.format("kafka")
        .options(**spark_options(bootstrap_servers))
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        # A job fails if Kafka has dropped records that it hasn't read, since going on would leave a silent gap.
        .option("failOnDataLoss", "true")
    )
    if trigger is Trigger.REAL_TIME:
        reader = reader.option("kafka.fetch.max.wait.ms", _FETCH_WAIT_MS)
    else:
        reader = reader.option("maxOffsetsPerTrigger", str(most))
    frame = reader.load()
    # Jobs skip erasures, since only indexes apply these, and arrivals, by which another job reports its progress to
    # servers. Jobs in micro-batches also skip markers: Spark sorts a micro-batch by key between tasks, so a marker
    # could overtake rows that came before it.
    passed_over = [ERASURE_KEY, ARRIVAL_KEY] if trigger is Trigger.REAL_TIME else [ERASURE_KEY, ARRIVAL_KEY, MARKER_KEY]
    return frame.where(F.col("key").isNull() | ~F.col("key").isin(*(F.lit(key) for key in passed_over)))
