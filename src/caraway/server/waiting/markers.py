"""Markers as a server uses them: written to the inputs of jobs, their arrivals read from the outputs."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import TopicPartition

from caraway.index.feeding.consumption import connect
from caraway.plan.model import JobMode, JobPlan
from caraway.server.waiting.goals import Goal, Goals
from caraway.topics import ARRIVAL_KEY, MARKER_KEY, Arrival, TopicWriter, decode_arrival
from caraway.topics.markers import TOKEN_BYTES, job_tag
from caraway.topics.positions import Offsets, TopicEnds

# Records taken at once from the outputs of jobs, among which the arrivals are.
BATCH = 1_000
WRITE_TIMEOUT_S = 8.0


@dataclass(slots=True)
class Seen:
    """The arrivals of one marker behind one job, by partition of the output topic."""

    copies: int = 0
    # Of each partition the offset behind each arrival, by its path.
    paths: dict[int, dict[bytes, int]] = field(default_factory=dict)

    def add(self, arrival: Arrival, partition: int, offset: int) -> None:
        """Take an arrival at an offset of a partition."""
        self.copies = arrival.copies
        self.paths.setdefault(partition, {})[arrival.path] = offset + 1

    def goal(self, sources: int, partitions: int) -> Goal | None:
        """Return where the last arrivals stand, None while some are missing.

        Args:
            sources: How many partitions the marker was written to.
            partitions: How many partitions the output topic has.
        """
        wanted = sources * self.copies
        if len(self.paths) < partitions or any(len(paths) < wanted for paths in self.paths.values()):
            return None
        return {partition: max(paths.values()) for partition, paths in self.paths.items()}


class Markers:
    """The markers of one wait. Not thread safe."""

    def __init__(self, bootstrap_servers: str, writer: TopicWriter, jobs: Mapping[str, JobPlan]) -> None:
        """Use the broker; `jobs` are those of the plan by id. Nothing is asked before `begin`."""
        self._ends = TopicEnds(bootstrap_servers)
        self._writer = writer
        # Micro-batches report their positions themselves.
        self._jobs = {job_id: job for job_id, job in jobs.items() if job.mode is JobMode.REAL_TIME}
        self._consumer = connect(bootstrap_servers) if self._jobs else None
        self._outputs: Offsets = {}
        # By input topic: the token of its marker and how many partitions it was written to.
        self._sent: dict[str, tuple[bytes, int]] = {}
        self._seen: dict[tuple[bytes, bytes], Seen] = {}

    def begin(self) -> None:
        """Begin to read the outputs of all jobs, before any marker is written.

        Raises:
            UnavailableError: The broker doesn't answer.
        """
        if self._consumer is None:
            return
        self._outputs = self._ends.ends({job.output.name for job in self._jobs.values()})
        self._consumer.assign(
            [
                TopicPartition(topic, partition, offset)
                for topic, partitions in self._outputs.items()
                for partition, offset in partitions.items()
            ]
        )

    def send(self, goals: Goals) -> None:
        """Write a marker to each topic whose goal is known and that a job still has to be seen behind.

        Raises:
            UnavailableError: The broker doesn't take it.
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
            # A topic that is made later has nothing that is waited for.
            self._sent[topic] = (token, len(goals.known[topic]))
            writing.append(self._writer.write_to_all(topic, MARKER_KEY, token))
        for written in writing:
            written.result(WRITE_TIMEOUT_S)

    def read(self, seconds: float) -> None:
        """Read what has come on the outputs of jobs; wait for it up to `seconds`."""
        if self._consumer is None or not self._outputs:
            return
        tokens = {token for token, _ in self._sent.values()}
        for message in self._consumer.consume(BATCH, seconds):
            if message.error() is not None or message.key() != ARRIVAL_KEY:
                continue
            arrival = decode_arrival(message.value() or b"")
            if arrival is not None and arrival.token in tokens:
                seen = self._seen.setdefault((arrival.token, arrival.job), Seen())
                seen.add(arrival, message.partition() or 0, message.offset() or 0)

    def arrived(self, job: JobPlan) -> Goal | None:
        """Return the goal of a job's output if the markers of all of its inputs have arrived there, else None."""
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

    def ends(self) -> TopicEnds:
        """Return what asks the broker where topics end."""
        return self._ends

    def close(self) -> None:
        """Let go of the broker."""
        if self._consumer is not None:
            self._consumer.close()
