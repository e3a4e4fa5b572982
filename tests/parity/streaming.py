"""Cases through the real thing: a broker, a Spark session with jobs, and the index worker."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import orjson
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.streams.engine.jobs import brief
from caraway.dataplane.streams.spark.jobs import start_job
from caraway.graph.plan.model import JobPlan
from caraway.state.migrate import migrate
from tests.integration.databases import new_database, running_postgres
from tests.integration.spark.broker import Broker, running_broker
from tests.integration.spark.sessions import running_session
from tests.parity.archived import Archived
from tests.parity.comparing import Difference, Expected
from tests.parity.counting import CountingProcess, differing_counts
from tests.parity.erasing import ErasureCheck
from tests.parity.explaining import differing_explanations
from tests.parity.graphs import Case
from tests.parity.indexing import DoubleIndex
from tests.parity.traffic import Part, Traffic
from tests.timeouts import deadline_in

CHECKPOINT_S = 5
# Topics have a partition or two.
SHARDS = 2
# Twelve jobs, on machines that are three times slower than a quiet one.
SETTLE_S = 300.0
POLL_S = 0.1


@dataclass(frozen=True)
class Machinery:
    """The services that all runs share; `postgres` is the URL of a database for the counts of expectations."""

    broker: Broker
    spark: SparkSession
    index: DoubleIndex
    postgres: str
    folder: Path


@contextmanager
def machinery(folder: Path, spark: SparkSession | None = None, postgres: str | None = None) -> Iterator[Machinery]:
    """Start a broker, an index worker, and a session and a Postgres, if none is given, and end them afterwards."""
    with ExitStack() as stack:
        broker = stack.enter_context(running_broker(folder))
        server = postgres or stack.enter_context(running_postgres(folder))
        database = stack.enter_context(new_database(server))
        migrate(database)
        stores = [stack.enter_context(IndexStore(folder / f"index-{number}")) for number in range(1 + SHARDS)]
        session = spark or stack.enter_context(running_session(folder / "spark"))
        index = DoubleIndex(broker.bootstrap_servers, stores[0], stores[1:])
        stack.callback(index.stop)
        yield Machinery(broker, session, index, database, folder)


class Run(Traffic):
    """Some cases, running together in one session."""

    def __init__(self, machinery: Machinery, cases: Sequence[Case], label: str) -> None:
        super().__init__(machinery.broker.bootstrap_servers, machinery.index, cases, label)
        self._machinery, self._label = machinery, label
        self._pauses = Random(label)
        self.archived = self._archive = Archived(self.servers, machinery.folder / "objects")
        self._jobs = [job for part in self.parts for job in part.plan.jobs]
        self._queries: dict[str, StreamingQuery] = {}
        #: Why jobs don't run, by job.
        self.failures: dict[str, str] = {}
        self._counting: CountingProcess | None = None

    def go(self, bursts: int = 4) -> None:
        """Make the topics, write what arrives in bursts, start the jobs after the first one, and wait for the end."""
        self.open()
        first, *others = self.lots(bursts)
        self.send(first)
        self._counting = CountingProcess(
            self.servers,
            self._machinery.postgres,
            self._machinery.folder / "counting" / self._label,
            self.parts,
            rng=Random(f"kills of {self._label}"),
        )
        for job in self._jobs:
            self._start(job)
        for lot in others:
            self.send(lot)
            time.sleep(self._pauses.choice([0.0, 0.2, 0.5]))
        self._archive.archive(self.parts, steps=self._pauses.choice([1, 2, 5]))
        self.settle()

    def unexpected(self) -> list[Difference]:
        """Return where the counts of expectations aren't exact, once everything has settled."""
        assert self._counting is not None
        self._counting.settle()
        return [found for part in self.parts for found in differing_counts(self, part, self._counting)]

    def unexplained(self, part: Part, wanted: Sequence[Expected]) -> list[Difference]:
        """Return the values of a case that their explanations don't give, among those that it must hold."""
        objects = self._machinery.folder / "objects"
        return differing_explanations(self.servers, objects, self.index, part, wanted)

    def erasures(self) -> ErasureCheck:
        """Return the check of what holds after erasures, once everything has settled and was compared."""
        return ErasureCheck(self.servers, self._machinery.folder / "objects", self._machinery.index)

    def settle(self) -> None:
        """Wait until all jobs have read their inputs to the end, and the index has their outputs."""
        deadline = deadline_in(SETTLE_S)
        while unread := self._unread():
            for job_id, query in self._queries.items():
                if (error := query.exception()) is not None:
                    self.failures[job_id] = brief(error)
            if self._counting is not None:
                self._counting.kill_by_chance()
            if time.monotonic() > deadline:
                raise TimeoutError(f"not read to the end in time: {unread}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        if self._counting is not None:
            self._counting.stop()
        for query in self._queries.values():
            query.stop()
        self.close()

    def _start(self, job: JobPlan) -> None:
        try:
            self._queries[job.job_id] = start_job(
                self._machinery.spark,
                job,
                bootstrap_servers=self.servers,
                checkpoint=self._machinery.folder / "checkpoints" / job.job_id,
                checkpoint_interval_seconds=CHECKPOINT_S,
                # However many tasks a step has that keeps rows.
                tasks=Random(job.job_id).choice([1, 2]),
            )
        except PySparkException as error:
            self.failures[job.job_id] = brief(error)

    def _unread(self) -> list[str]:
        """Return the jobs and indexes that aren't at the end of their topics."""
        # First the reports, then the ends: what was written in between shows as unread.
        reached = {job_id: _reached(query) for job_id, query in self._queries.items()}
        indexed = self.indexed()
        ends = self.ends()
        running = [job for job in self._jobs if job.job_id not in self.failures]
        jobs = [j.job_id for j in running if any(reached[j.job_id].get(t.name) != ends[t.name] for t in j.inputs)]
        indexes = [
            index.dataset
            for part in self.parts
            for index in part.plan.indexes
            if indexed.get(index.asset.hex()) != ends[index.topic]
        ]
        return jobs or indexes


def _reached(query: StreamingQuery) -> dict[str, dict[int, int]]:
    """Return the offsets up to which a query has committed, by topic and partition."""
    progress = query.lastProgress
    if progress is None:
        return {}
    offsets: dict[str, dict[int, int]] = {}
    for source in progress["sources"]:
        end = source["endOffset"]
        for topic, parts in (orjson.loads(end) if isinstance(end, str) else end or {}).items():
            offsets[topic] = {int(partition): offset for partition, offset in parts.items()}
    return offsets
