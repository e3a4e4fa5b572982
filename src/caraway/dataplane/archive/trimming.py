"""The removal of archived records from topics, which needn't keep what the archive has.

A record is removed only if it is in the table of its topic, is older than the setting says, and all jobs that run have
processed it. A job or an index that begins before a topic does reads the archive first
(`caraway.dataplane.archive.store.messages`).
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from caraway.dataplane.topics.connection import client_config, kafka_logger
from caraway.dataplane.topics.positions import Offsets, TopicEnds
from caraway.errors import UnavailableError
from caraway.graph.plan.model import JobPlan

LOG = structlog.get_logger(__name__)

ANSWER_SECONDS = 10.0
DAY_SECONDS = 86_400.0
LONGEST_INTERVAL_S = 600.0


def processed(jobs: Iterable[tuple[JobPlan, Mapping[str, Any]]]) -> dict[str, dict[int, int]]:
    """Return the offsets up to which all jobs have processed the partitions of their topics, where a job reads any.

    Args:
        jobs: The jobs, each with the figures that its engine reported last; a job without any has processed nothing.
    """
    least: dict[str, dict[int, int]] = {}
    for plan, progress in jobs:
        positions = progress.get("positions", {})
        for topic in plan.inputs:
            reached = {int(partition): offset for partition, offset in positions.get(topic.name, {}).items()}
            known = least.get(topic.name)
            # A partition that some job hasn't begun to read is left out. Callers treat such a partition as not
            # processed at all.
            least[topic.name] = (
                reached if known is None else {p: min(known[p], reached[p]) for p in known.keys() & reached.keys()}
            )
    return least


def removable(archived: Offsets, old: Offsets, processed_: Offsets) -> dict[str, dict[int, int]]:
    """Return the offsets before which records may be removed.

    Args:
        archived: The offset of the next message to archive.
        old: The offset of the first message that is to stay because of its age.
        processed_: The offset up to which all jobs of a topic have processed it; a topic without jobs is left out.
    """
    return {
        topic: {
            partition: min(end, old.get(topic, {}).get(partition, 0), processed_[topic].get(partition, 0))
            if topic in processed_
            else min(end, old.get(topic, {}).get(partition, 0))
            for partition, end in ends.items()
        }
        for topic, ends in archived.items()
    }


class Trimming:
    """Removes archived records from topics."""

    def __init__(self, bootstrap_servers: str, days: float | None, *, clock: Callable[[], float] = time.time) -> None:
        """Prepare to trim the topics of the broker "host:port".

        Args:
            bootstrap_servers: The broker.
            days: The age in days from which on records are removed; None: no records are.
            clock: Returns the time in seconds since the epoch.
        """
        self._bootstrap_servers = bootstrap_servers
        self._days = days
        self._clock = clock
        self._ends = TopicEnds(bootstrap_servers)

    @property
    def interval_s(self) -> float:
        """The seconds between two calls of `trim`: short beside the age at which records are removed."""
        return LONGEST_INTERVAL_S if self._days is None else min(self._days * DAY_SECONDS / 100, LONGEST_INTERVAL_S)

    @property
    def is_on(self) -> bool:
        """True if any records are removed."""
        return self._days is not None

    def trim(self, archived: Offsets, jobs: Iterable[tuple[JobPlan, Mapping[str, Any]]]) -> Offsets:
        """Remove what may be removed from topics, and return where those begin of which something was removed.

        Args:
            archived: The offsets of the next messages to archive.
            jobs: All jobs that are to run, each with its last figures.

        Raises `UnavailableError` if the broker doesn't answer, or refuses.
        """
        if self._days is None or not archived:
            return {}
        old = self._ends.since(archived, self._clock() - self._days * DAY_SECONDS)
        first = self._ends.beginnings(archived)
        wanted = removable(archived, old, processed(jobs))
        changed = {
            topic: moved
            for topic, offsets in wanted.items()
            if (moved := {p: offset for p, offset in offsets.items() if offset > first.get(topic, {}).get(p, offset)})
        }
        remove_before(self._bootstrap_servers, changed)
        for topic, offsets in changed.items():
            LOG.info("removed archived records from a topic", topic=topic, begins=offsets)
        return changed


def remove_before(bootstrap_servers: str, offsets: Offsets) -> None:
    """Remove the records of topics before some offsets, by partition.

    Kafka deletes whole files, each of which has many records (`segment.bytes`, `segment.ms`). The other records before
    the offsets can't be read any more, and are deleted with their file.

    Raises `UnavailableError` if the broker at "host:port" doesn't answer, or refuses.
    """
    wanted = [TopicPartition(topic, p, offset) for topic, found in offsets.items() for p, offset in found.items()]
    if not wanted:
        return
    admin = AdminClient(client_config(bootstrap_servers), logger=kafka_logger())
    try:
        answers = admin.delete_records(wanted, request_timeout=ANSWER_SECONDS, operation_timeout=ANSWER_SECONDS)
        for answer in answers.values():
            answer.result()
    except KafkaException as error:
        raise UnavailableError(f"archived records can't be removed from topics: {error}") from error
