"""Creating, removing and listing topics."""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicMetadata
from confluent_kafka.cimpl import NewTopic

from caraway.errors import UnavailableError
from caraway.topics.connection import client_config, kafka_logger

# Topics are the truth: indexes and new jobs are built from all of their records. So nothing in a topic ever expires,
# unless its creator overrides these settings.
TOPIC_CONFIG = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
POLL_S = 0.05
ANSWER_TIMEOUT_S = 5.0


def ensure_topics(
    bootstrap_servers: str,
    names: Iterable[str],
    partitions: int,
    *,
    replication_factor: int = 1,
    timeout_s: float = 30.0,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create the topics that don't exist yet and wait until all have leaders; those that exist stay as they are.

    Args:
        bootstrap_servers: The broker, "host:port".
        names: Names of the topics.
        partitions: How many partitions a new topic gets.
        replication_factor: How many brokers keep a new topic.
        timeout_s: How long to wait for the broker and for the leaders, in seconds.
        config: Settings of a new topic that override `TOPIC_CONFIG`.

    Raises:
        UnavailableError: The broker can't be reached, refuses, or has no leaders in time.
    """
    wanted = set(names)
    if not wanted:
        return
    admin = AdminClient(client_config(bootstrap_servers), logger=kafka_logger())
    deadline = time.monotonic() + timeout_s
    new = wanted - _with_leaders(admin, bootstrap_servers, deadline).keys()
    if not new:
        return
    topics = [
        NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config={**TOPIC_CONFIG, **(config or {})},
        )
        for name in sorted(new)
    ]
    left_s = max(1.0, deadline - time.monotonic())
    created = admin.create_topics(topics, operation_timeout=left_s, request_timeout=left_s)
    _settle(created, KafkaError.TOPIC_ALREADY_EXISTS, "create")
    while True:
        ready = _with_leaders(admin, bootstrap_servers, deadline)
        if new <= ready.keys() and _answer(admin, {name: ready[name] for name in new}):
            return
        if time.monotonic() > deadline:
            raise UnavailableError(f"the topics {', '.join(sorted(new))} aren't ready after {timeout_s:g} s")
        time.sleep(POLL_S)


def _with_leaders(admin: AdminClient, bootstrap_servers: str, deadline: float) -> dict[str, list[int]]:
    """Return the topics whose partitions all have leaders, each with its partitions."""
    topics = _listed(admin, bootstrap_servers, max(0.1, deadline - time.monotonic()))
    return {
        name: list(topic.partitions)
        for name, topic in topics.items()
        if topic.error is None and topic.partitions and all(p.leader >= 0 for p in topic.partitions.values())
    }


def _listed(admin: AdminClient, bootstrap_servers: str, timeout_s: float) -> dict[str, TopicMetadata]:
    """Return all topics by name."""
    try:
        return admin.list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        raise UnavailableError(
            f"no Kafka broker answers at {bootstrap_servers} ({_reason(error)}). Is it running?"
        ) from error


def _answer(admin: AdminClient, topics: dict[str, list[int]]) -> bool:
    """Return whether all leaders accept requests: for a moment after their election they still refuse writes."""
    latest = {TopicPartition(name, p): OffsetSpec.latest() for name, partitions in topics.items() for p in partitions}  # type: ignore[no-untyped-call]
    futures = admin.list_offsets(latest, request_timeout=ANSWER_TIMEOUT_S)
    return all(future.exception() is None for future in futures.values())


def _settle(futures: "Mapping[str, Future[None]]", ignored: int, verb: str) -> None:
    """Wait for requests, one for each topic. Raises `UnavailableError` at an error that isn't `ignored`."""
    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != ignored:
                raise UnavailableError(f"Kafka didn't {verb} the topic {name}: {_reason(error)}") from error


def _reason(error: KafkaException) -> str:
    cause = error.args[0]
    return cause.str() if isinstance(cause, KafkaError) else str(cause)


def drop_topics(bootstrap_servers: str, names: Iterable[str], *, timeout_s: float = 30.0) -> None:
    """Remove topics with all of their records; names of topics that don't exist are ignored.

    Raises `UnavailableError` if the broker can't be reached or refuses.
    """
    wanted = sorted(set(names))
    if not wanted:
        return
    admin = AdminClient(client_config(bootstrap_servers), logger=kafka_logger())
    removed = admin.delete_topics(wanted, operation_timeout=timeout_s, request_timeout=timeout_s)
    _settle(removed, KafkaError.UNKNOWN_TOPIC_OR_PART, "remove")


def topic_names(bootstrap_servers: str, *, timeout_s: float = 30.0) -> frozenset[str]:
    """Return the names of all topics. Raises `UnavailableError` if the broker can't be reached."""
    admin = AdminClient(client_config(bootstrap_servers), logger=kafka_logger())
    return frozenset(_listed(admin, bootstrap_servers, timeout_s))
