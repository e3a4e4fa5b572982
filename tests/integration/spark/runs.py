"""Runs of jobs over rows that come in small lots."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from caraway.dataplane.streams.spark.jobs import start_job
from caraway.dataplane.streams.spark.letters import LetterCount
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.graph.plan.model import JobPlan
from tests.integration.spark import pipelines as model
from tests.integration.spark.broker import Awaited, Broker, Received, astray
from tests.integration.spark.pipelines import SOURCES, Arrival, Case

BURSTS = 6


@dataclass(frozen=True)
class Run:
    """The jobs, their output and their dead letters, by the name of their case.

    All jobs have ended, some by a failure. Dead letters are there of the cases of which some were expected.
    """

    jobs: dict[str, JobPlan]
    expected: dict[str, list[Any]]
    found: dict[str, list[Any]]
    letters: dict[str, list[dict[str, Any]]]
    failures: dict[str, StreamingQueryException | None]

    def check(self, case: Case, *, least: int = 1) -> None:
        """Check that a job has the output of the in-process engine: at least so many rows, and none astray."""
        rows, _ = self.expected[case.name]
        assert len(rows) >= least
        assert self.failures[case.name] is None
        assert self.found[case.name] == self.expected[case.name]


def run_all(
    cases: Sequence[Case],
    arrivals: Mapping[str, Sequence[Arrival]],
    *,
    broker: Broker,
    spark: SparkSession,
    folder: Path,
    suffix: str,
    letters: Mapping[str, int] | None = None,
) -> Run:
    """Run the jobs of all cases over the same rows until all outputs are as expected, or the time limit is over.

    The expected output of a case are its rows, and no key with a row that is elsewhere or nowhere. `letters` has the
    numbers of dead letters of some cases.
    """
    jobs = {case.name: model.plan(case, suffix)[1] for case in cases}
    sources = {topic.dataset: topic for job in jobs.values() for topic in job.inputs}
    names = [topic.name for topic in (*sources.values(), *(job.output for job in jobs.values()))]
    ensure_topics(broker.bootstrap_servers, [*names, DEAD_LETTERS], 1)
    expected = {case.name: [model.expected(case, arrivals), []] for case in cases}
    views = {case.name: _with_strays(jobs[case.name], case) for case in cases}
    queries: dict[str, StreamingQuery] = {}
    try:
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
                        letters=LetterCount(spark, job.job_id),
                    )
        awaited = [Awaited(job.output, expected[name], views[name]) for name, job in jobs.items()]
        found = dict(zip(jobs, broker.receive_all(awaited), strict=True))
        refused = {name: model.letters(broker, jobs[name], least) for name, least in (letters or {}).items()}
        failures = {name: query.exception() for name, query in queries.items()}
    finally:
        for query in queries.values():
            query.stop()
    return Run(jobs, expected, found, refused, failures)


def _with_strays(job: JobPlan, case: Case) -> Callable[[Iterable[Received]], list[Any]]:
    view = model.held(job.output, model.derived(case.name, case.operator))

    def both(records: Iterable[Received]) -> list[Any]:
        known = list(records)
        return [view(known), astray(known)]

    return both
