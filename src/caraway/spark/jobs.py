"""A job's plan to a running query."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from caraway.plan.model import JobMode, JobPlan
from caraway.spark.codec import Codec
from caraway.spark.inputs import Inputs, joins_of
from caraway.spark.steps import compile_step

# Rows of a micro-batch: a backlog is worked off in pieces that fit into memory.
MICRO_BATCH_ROWS = 500_000


def compile_job(session: SparkSession, plan: JobPlan, bootstrap_servers: str) -> DataFrame:
    """Compile a job to the DataFrame of Kafka records (`key`, `value`) that it writes."""
    inputs = Inputs(
        session=session,
        kafka=_read(session, [topic.name for topic in plan.inputs], plan.mode, bootstrap_servers),
        topics={topic.dataset: topic for topic in plan.inputs},
        joins=joins_of(plan.operator),
        job_id=plan.job_id,
        horizon_us=plan.horizon_us,
    )
    return Codec(session).encode_records(compile_step(plan.operator, inputs).frame, plan.output.schema)


def start_job(
    session: SparkSession,
    plan: JobPlan,
    *,
    bootstrap_servers: str,
    checkpoint: Path,
    checkpoint_interval_seconds: int,
) -> StreamingQuery:
    """Start a job where its checkpoint left it, or at the beginning of its topics if there is none.

    Args:
        session: Session as `caraway.spark.session` makes it.
        plan: The job; its topics must exist.
        bootstrap_servers: Kafka brokers, `host:port,host:port`.
        checkpoint: Folder that belongs to this job alone.
        checkpoint_interval_seconds: How often a job in real-time mode writes a checkpoint; at least 5.

    Raises:
        pyspark.errors.PySparkException: Spark refuses the query.
    """
    forget_unfinished(checkpoint)
    writer = (
        compile_job(session, plan, bootstrap_servers)
        .writeStream.queryName(plan.job_id)
        .format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", plan.output.name)
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
