"""Erased keys in dead letters: their rows are found, and removed from the topic of dead letters.

Kafka removes a dead letter when its topic is compacted, after a record with the same key and without a value.
"""

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import structlog
from confluent_kafka import KafkaException, Producer

from caraway.compute.rows.column_casts import MISSING, ColumnCast
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.topics.connection import client_config, kafka_logger
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS, KEY_BYTES
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.letter_reader import Letter, every
from caraway.dataplane.topics.positions import TopicEnds
from caraway.dataplane.topics.segments import begin_segments
from caraway.errors import UnavailableError
from caraway.graph.plan.model import Column, GraphPlan, RecordSchema
from caraway.state.blueprints import content_of

LOG = structlog.get_logger(__name__)

WRITE_SECONDS = 10.0
PRODUCING: dict[str, Any] = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": int(WRITE_SECONDS * 1000)}


def topics_of_step(plan: GraphPlan, body: Mapping[str, Any]) -> Iterator[tuple[str, RecordSchema]]:
    """Yield the topics, with their schemas, whose rows the step, sink or follower handles that made a dead letter."""
    for job in plan.jobs:
        if job.job_id == body.get("job"):
            yield from ((topic.name, topic.schema) for topic in (*job.inputs, job.output))
    for topic in plan.topics:
        if "follower" in body and topic.name == body.get("topic"):
            yield topic.name, topic.schema
    for sink in plan.sinks:
        if "sink" in body and sink.topic.name == body.get("topic"):
            yield sink.topic.name, sink.topic.schema


def values_of(schema: RecordSchema, row: Mapping[str, object]) -> dict[Column, object]:
    """Return the columns that a row has and that fit their types, in stored form."""
    casts = [(column, ColumnCast(column.dtype)([row.get(column.name, MISSING)])) for column in schema.columns]
    return {column: cast.values[0] for column, cast in casts if not cast.errors}


class _Finder:
    """Finds rows of erased keys in dead letters."""

    def __init__(self, erased: ErasedKeys, plans: Sequence[GraphPlan]) -> None:
        self._erased = erased
        self._plans = plans
        self._targets: dict[str, list[Target]] = {}
        for ingest in {content_of(ingest): ingest for plan in plans for ingest in plan.ingests}.values():
            self._targets.setdefault(ingest.topic.dataset, []).append(Target(ingest))

    def is_erased(self, body: Mapping[str, Any]) -> bool:
        """Return whether the row of a dead letter is of an erased key.

        A row of which only the beginning was kept, since it is large, is not found.
        """
        row = body.get("row")
        if not isinstance(row, dict):
            return False
        if "webhook" in body or "source" in body:
            targets = self._targets.get(str(body.get("dataset")), ())
            return any(self._erased.hides_values(target.topic, target.erasable_of(row)) for target in targets)
        topics = (found for plan in self._plans for found in topics_of_step(plan, body))
        return any(self._erased.hides_values(topic, values_of(schema, row)) for topic, schema in topics)


class LetterErasure:
    """Removes dead letters of erased keys. For one thread at a time."""

    def __init__(self, bootstrap_servers: str, erased: ErasedKeys) -> None:
        """Work on the topic of the broker "host:port"; `erased` are the keys."""
        self._bootstrap_servers = bootstrap_servers
        self._erased = erased

    def sweep(self, plans: Sequence[GraphPlan], retired_jobs: Collection[str]) -> None:
        """Remove the dead letters of erased keys, and all of jobs that are retired.

        A job that is retired has been computed again by another one, which has written its own dead letters.

        Args:
            plans: The plans of all commits in use.
            retired_jobs: The names of jobs.

        Raises:
            UnavailableError: Kafka doesn't answer, or a secret to compare keys is missing.
        """
        finder = _Finder(self._erased, plans)
        found = [
            letter
            for letters in every(self._bootstrap_servers)
            for letter in letters
            if letter.body.get("job") in retired_jobs or finder.is_erased(letter.body)
        ]
        if found:
            self._remove(found)
            LOG.info("removed dead letters of erased keys", letters=len(found))

    def _remove(self, letters: Sequence[Letter]) -> None:
        producer = Producer(client_config(self._bootstrap_servers) | PRODUCING, logger=kafka_logger())
        partitions = sorted(TopicEnds(self._bootstrap_servers).ends([DEAD_LETTERS])[DEAD_LETTERS])
        failures: list[str] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failures.append(str(error))

        def write() -> None:
            """Write a record to each partition that stands for nothing, and wait for all records."""
            for partition in partitions:
                producer.produce(
                    DEAD_LETTERS, None, secrets.token_bytes(KEY_BYTES), partition=partition, on_delivery=delivered
                )
            if producer.flush(WRITE_SECONDS) or failures:
                raise UnavailableError(f"Kafka doesn't take records on {DEAD_LETTERS}: {failures[:1]}")

        try:
            for letter in letters:
                producer.produce(DEAD_LETTERS, None, letter.key, partition=letter.partition, on_delivery=delivered)
                producer.poll(0)
            # Kafka compacts all files of a partition but the newest one, so a new file is begun behind these records.
            begin_segments(self._bootstrap_servers, DEAD_LETTERS, write)
        except (BufferError, KafkaException) as error:
            raise UnavailableError(f"Kafka doesn't take records on {DEAD_LETTERS}: {error}") from error
