"""Jobs as Spark's streaming queries."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from caraway.engine.jobs import brief
from caraway.plan.model import JobPlan
from caraway.spark.jobs import start_job
from caraway.topics import ensure_topics

# Jobs that start together would all pause together at each checkpoint; intervals that differ by up to a sixth drift
# apart.
STAGGER_PART = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRuntime:
    """Starts jobs in one session.

    Attributes:
        session: The session.
        bootstrap_servers: Kafka brokers.
        partitions: Partitions of a topic that has to be made.
        checkpoints: Folder with a folder for each job.
        checkpoint_interval_seconds: Least time between two checkpoints of a job.
    """

    session: SparkSession
    bootstrap_servers: str
    partitions: int
    checkpoints: Path
    checkpoint_interval_seconds: int

    def start(self, plan: JobPlan) -> "SparkQuery":
        """Start a job; its topics are made if a commit that was cut short has left one out."""
        ensure_topics(
            self.bootstrap_servers, [plan.output.name, *(topic.name for topic in plan.inputs)], self.partitions
        )
        query = start_job(
            self.session,
            plan,
            bootstrap_servers=self.bootstrap_servers,
            checkpoint=self.checkpoints / plan.job_id,
            checkpoint_interval_seconds=staggered(self.checkpoint_interval_seconds, plan.job_id),
        )
        return SparkQuery(query)


@dataclass(frozen=True, slots=True)
class SparkQuery:
    """A running query."""

    query: StreamingQuery

    def failure(self) -> str | None:
        """Return why it ended, None while it runs."""
        if self.query.isActive:
            return None
        error = self.query.exception()
        return "the query has ended without an error" if error is None else brief(error)

    def progress(self) -> Mapping[str, object]:
        """Return rows and rates of the last interval; a query in real-time mode tells them at each checkpoint."""
        last = self.query.lastProgress
        if last is None:
            return {}
        progress = json.loads(last.json)
        return {
            "at": progress["timestamp"],
            "batch": progress["batchId"],
            "rows": progress["numInputRows"],
            "rows_per_second": round(progress.get("processedRowsPerSecond") or 0.0, 1),
            "state_rows": sum(operator["numRowsTotal"] for operator in progress["stateOperators"]),
        }

    def stop(self) -> None:
        """End it."""
        self.query.stop()


def staggered(interval_seconds: int, job_id: str) -> int:
    """Return the checkpoint interval of a job: always the same, and mostly another one than the next job's."""
    return interval_seconds + hashlib.sha256(job_id.encode()).digest()[0] % (1 + interval_seconds // STAGGER_PART)
