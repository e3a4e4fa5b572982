"""The markers of a wait: written to the inputs of jobs, and read where they arrive on the outputs."""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition

from caraway.apps.server.waiting.goals import Goal, Goals
from caraway.dataplane.index.feeding.consumption import FRESH
from caraway.dataplane.topics.markers import ARRIVAL_KEY, MARKER_KEY, TOKEN_BYTES, Arrival, decode_arrival, job_tag
from caraway.dataplane.topics.polling import poll_some
from caraway.dataplane.topics.positions import Offsets, TopicEnds
from caraway.dataplane.topics.producer import TopicWriter
from caraway.dataplane.topics.reader import connected
from caraway.graph.plan.model import JobMode, JobPlan

# The most records that one poll returns from the output topics of jobs.
BATCH = 1_000
WRITE_TIMEOUT_S = 8.0


@dataclass(slots=True)
class Seen:
    """The arrivals of one marker behind one job, by partition of the output topic."""

    copies: int = 0
    # By partition of the output topic and path of the marker: the offset behind the arrival.
    paths: dict[int, dict[bytes, int]] = field(default_factory=dict)

    def add(self, arrival: Arrival, partition: int, offset: int) -> None:
        """Add an arrival at an offset of a partition."""
        self.copies = arrival.copies
        self.paths.setdefault(partition, {})[arrival.path] = offset + 1

    def goal(self, sources: int, partitions: int) -> Goal | None:
        """Return the position behind all arrivals, None while some are missing.

        Args:
            sources: The number of partitions to which the marker was written.
            partitions: The number of partitions of the output topic.
        """
        wanted = sources * self.copies
        if len(self.paths) < partitions or any(len(paths) < wanted for paths in self.paths.values()):
            return None
        return {partition: max(paths.values()) for partition, paths in self.paths.items()}


class Markers:
    """The markers of one wait. Not thread safe."""

    def __init__(
        self,
        bootstrap_servers: str,
        writer: TopicWriter,
        jobs: Mapping[str, JobPlan],
        *,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """Use the broker; `jobs` are those of the plan by id. The broker isn't asked before `begin`.

        `pause` waits for some seconds; it is called where there is no output on which records could come.
        """
        self._pause = pause
        self.ends = TopicEnds(bootstrap_servers)
        self._writer = writer
        # Jobs in micro-batch mode pass no markers on. They report to Postgres the positions that they have processed,
        # which `Goals.advance` reads.
        self._jobs = {job_id: job for job_id, job in jobs.items() if job.mode is JobMode.REAL_TIME}
        self._bootstrap_servers = bootstrap_servers
        self._consumer: Consumer | None = None
        self._outputs: Offsets = {}
        # By input topic: the token of its marker, and the number of partitions from which arrivals must come.
        self._sent: dict[str, tuple[bytes, int]] = {}
        self._seen: dict[tuple[bytes, bytes], Seen] = {}

    def begin(self) -> None:
        """Start reading the outputs of all jobs, before any marker is written.

        Raises `UnavailableError` if the broker doesn't answer.
        """
        if not self._jobs:
            return
        self._consumer = connected(self._bootstrap_servers, FRESH.config)
        self._outputs = self.ends.ends({job.output.name for job in self._jobs.values()})
        self._consumer.assign(
            [
                TopicPartition(topic, partition, offset)
                for topic, partitions in self._outputs.items()
                for partition, offset in partitions.items()
            ]
        )

    def send(self, goals: Goals) -> None:
        """Write a marker to each topic whose goal is known and that some job may not have processed up to it.

        Raises `UnavailableError` if the broker doesn't accept a marker.
        """
        due = {
            topic.name
            for job in self._jobs.values()
            if job.output.name not in goals.known
            for topic in job.inputs
            if topic.name in goals.known
        }
        writing = []
        for topic in due - self._sent.keys():
            token = secrets.token_bytes(TOKEN_BYTES)
            # Arrivals are awaited only for the partitions in the goal. A topic that was created after the wait began
            # has no partition in the goal, and its rows were accepted too late for this wait.
            self._sent[topic] = (token, len(goals.known[topic]))
            writing.append(self._writer.write_to_all(topic, MARKER_KEY, token))
        for written in writing:
            written.result(WRITE_TIMEOUT_S)

    def read(self, seconds: float) -> None:
        """Read the records that have come on the outputs of jobs; wait for them up to `seconds`.

        If no job writes markers, this only waits, so that a caller that repeats it doesn't keep a processor busy.
        """
        if self._consumer is None or not self._outputs:
            self._pause(seconds)
            return
        tokens = {token for token, _ in self._sent.values()}
        for message in poll_some(self._consumer, BATCH, seconds):
            if message.error() is not None or message.key() != ARRIVAL_KEY:
                continue
            arrival = decode_arrival(message.value() or b"")
            if arrival is not None and arrival.token in tokens:
                seen = self._seen.setdefault((arrival.token, arrival.job), Seen())
                seen.add(arrival, message.partition() or 0, message.offset() or 0)

    def arrived(self, job: JobPlan) -> Goal | None:
        """Return the goal of a job's output, None until the markers of all of its inputs have arrived there."""
        found: dict[int, int] = {}
        partitions = len(self._outputs.get(job.output.name, {}))
        for topic in job.inputs:
            token, sources = self._sent.get(topic.name, (b"", 0))
            seen = self._seen.get((token, job_tag(job.job_id)))
            goal = None if seen is None or not partitions else seen.goal(sources, partitions)
            if goal is None:
                return None
            for partition, offset in goal.items():
                found[partition] = max(offset, found.get(partition, 0))
        return found

    def close(self) -> None:
        """Close the connections to the broker."""
        if self._consumer is not None:
            self._consumer.close()
