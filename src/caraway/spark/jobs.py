"""A job's plan to a running query."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that everybody knows)
from pyspark.sql.streaming.query import StreamingQuery

from caraway.plan.model import JobMode, JobPlan
from caraway.spark.codec import PACKED, Codec, name
from caraway.spark.inputs import Inputs
from caraway.spark.letters import LetterCount
from caraway.spark.steps import compile_step
from caraway.topics import DEAD_LETTERS

# Rows of a micro-batch: a backlog is worked off in pieces that fit into memory.
MICRO_BATCH_ROWS = 500_000


def compile_job(
    session: SparkSession, plan: JobPlan, bootstrap_servers: str, letters: LetterCount | None = None
) -> DataFrame:
    """Compile a job to the DataFrame of Kafka records (`topic`, `key`, `value`) that it writes."""
    kafka = _read(session, [topic.name for topic in plan.inputs], plan.mode, bootstrap_servers)
    inputs = Inputs(session=session, kafka=kafka, plan=plan)
    result = compile_step(plan.operator, inputs, inputs.read())
    key, value = Codec(session).encoded(plan.output.schema)
    if not result.passengers:
        return result.frame.select(F.lit(plan.output.name).alias("topic"), key.alias("key"), value.alias("value"))
    letter = name(PACKED) if letters is None else letters.counted(name(PACKED))
    own = result.own()
    return result.frame.select(
        F.when(own, F.lit(plan.output.name)).otherwise(F.lit(DEAD_LETTERS)).alias("topic"),
        F.when(own, key).alias("key"),
        F.when(own, value).otherwise(letter).alias("value"),
    )


def start_job(
    session: SparkSession,
    plan: JobPlan,
    *,
    bootstrap_servers: str,
    checkpoint: Path,
    checkpoint_interval_seconds: int,
    letters: LetterCount | None = None,
) -> StreamingQuery:
    """Start a job where its checkpoint left it, or at the beginning of its topics if there is none.

    Args:
        session: Session as `caraway.spark.session` makes it.
        plan: The job; its topics must exist.
        bootstrap_servers: Kafka brokers, `host:port,host:port`.
        checkpoint: Folder that belongs to this job alone.
        checkpoint_interval_seconds: How often a job in real-time mode writes a checkpoint; at least 5.
        letters: Counts the rows that became dead letters (`caraway.topics.DEAD_LETTERS`, which must exist).

    Raises:
        pyspark.errors.PySparkException: Spark refuses the query.
    """
    forget_unfinished(checkpoint)
    writer = (
        compile_job(session, plan, bootstrap_servers, letters)
        .writeStream.queryName(plan.job_id)
        .format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        # A record counts as written when all replicas in sync have it, and no retry of the producer doubles it.
        .option("kafka.acks", "all")
        .option("kafka.linger.ms", "0")
        .option("checkpointLocation", str(checkpoint))
        .outputMode("update")
    )
    match plan.mode:
        case JobMode.REAL_TIME:
            # PySpark's own overloads don't know this argument yet.
            return writer.trigger(realTime=f"{checkpoint_interval_seconds} seconds").start()  # type: ignore[call-overload,no-any-return]
        case JobMode.MICRO_BATCH:
            return writer.trigger(processingTime="0 seconds").start()


def forget_unfinished(checkpoint: Path) -> None:
    """Remove a checkpoint in which no batch was ever committed.

    A kill in the middle of the first commit leaves a temporary file, on which Spark refuses to start ever again
    (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY). Nothing is lost: the job begins at the beginning, as it did then.
    """
    if checkpoint.exists() and not any(file.name.isdigit() for file in checkpoint.glob("commits/*")):
        shutil.rmtree(checkpoint)


def _read(session: SparkSession, topics: Sequence[str], mode: JobMode, bootstrap_servers: str) -> DataFrame:
    reader = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        # Kafka has dropped what a job has not read yet: going on would be a silent gap.
        .option("failOnDataLoss", "true")
    )
    if mode is JobMode.MICRO_BATCH:
        reader = reader.option("maxOffsetsPerTrigger", str(MICRO_BATCH_ROWS))
    return reader.load()
