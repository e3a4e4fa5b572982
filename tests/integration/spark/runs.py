"""Jobs under way, over rows that come in small lots."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from caraway.plan import JobPlan
from caraway.spark.jobs import start_job
from caraway.topics import DEAD_LETTERS, ensure_topics
from tests.integration.spark import pipelines as model
from tests.integration.spark.broker import Broker
from tests.integration.spark.pipelines import SOURCES, Arrival, Case

BURSTS = 6


@dataclass(frozen=True)
class Run:
    """Jobs by the name of their case."""

    broker: Broker
    jobs: dict[str, JobPlan]
    queries: dict[str, StreamingQuery]


def running(
    cases: Sequence[Case],
    arrivals: Mapping[str, Sequence[Arrival]],
    *,
    broker: Broker,
    spark: SparkSession,
    folder: Path,
    suffix: str,
) -> Iterator[Run]:
    """Run the jobs of all cases over the same rows, and stop them afterwards."""
    jobs = {case.name: model.plan(case, suffix)[1] for case in cases}
    sources = {topic.dataset: topic for job in jobs.values() for topic in job.inputs}
    names = [topic.name for topic in (*sources.values(), *(job.output for job in jobs.values()))]
    ensure_topics(broker.bootstrap_servers, [*names, DEAD_LETTERS], 1)
    queries = {}
    for burst in range(BURSTS):
        for dataset, topic in sources.items():
            sent = model.sent(SOURCES[dataset], topic, arrivals[dataset])
            size = -(-len(sent) // BURSTS)
            broker.send(topic, sent[burst * size : (burst + 1) * size])
        for name, job in jobs.items():
            if burst == 0:
                queries[name] = start_job(
                    spark,
                    job,
                    bootstrap_servers=broker.bootstrap_servers,
                    checkpoint=folder / job.job_id,
                    checkpoint_interval_seconds=5,
                )
    yield Run(broker, jobs, queries)
    for query in queries.values():
        query.stop()
