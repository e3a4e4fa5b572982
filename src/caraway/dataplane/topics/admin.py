"""Creating, removing and listing topics, and the reasons why brokers refuse their clients."""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from functools import partial

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource, OffsetSpec, TopicMetadata
from confluent_kafka.cimpl import NewTopic

from caraway.dataplane.topics.connection import client_config, kafka_logger
from caraway.dataplane.topics.credentials import settings_of
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.errors import UnavailableError
from caraway.graph.plan.model import is_own_topic
from caraway.process.settings.errors import ConfigurationError

# Indexes and new jobs are built from all records of their topics. So nothing in a topic ever expires, unless its
# creator overrides these settings.
TOPIC_CONFIG = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
POLL_S = 0.05
ANSWER_TIMEOUT_S = 5.0
# The timeouts, in seconds, of the requests to the brokers at the start of a process. No further request follows once
# the brokers have answered, or the reason why they don't is known.
LOOKS_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)

# The settings to look at when brokers refuse a client, by a part of librdkafka's text about it.
_REMEDIES = {
    "certificate verify failed": "an authority in kafka.ca_file must have signed the broker's certificate, "
    "and kafka.bootstrap_servers must name it as the certificate does",
    "PLAINTEXT broker listener": "the port speaks no TLS, which kafka.security_protocol asks for",
    "/tls alert": "the broker doesn't accept the certificate: check kafka.certificate_file and kafka.key_file",
    "SASL authentication error": "check kafka.user, kafka.password and kafka.sasl_mechanism",
    "OAUTHBEARER token": "check kafka.token_url, kafka.user, kafka.password and kafka.token_scope",
    "supported mechanisms": "check kafka.sasl_mechanism and kafka.security_protocol",
    # A port without TLS closes the connection, which librdkafka doesn't always report as an error of TLS.
    "state SSL_HANDSHAKE": "the port doesn't end the handshake of TLS, which kafka.security_protocol asks for",
}
# The warning about replicas that is logged at the start and shown by `caraway status`.
ALONE = (
    "each topic is on one broker, so acknowledged events are lost with its disk; see kafka.replication_factor in "
    "docs/operate/operations.md (1 says that it is meant so)"
)
SOME_ALONE = (
    "topics that are older than the present settings are on one broker each, and events are lost with its disk: {}; "
    "kafka-reassign-partitions, which comes with Kafka, adds replicas"
)
_NAMED = 3
ONE_SUFFICES = (
    "while the other brokers of a topic are away, events are acknowledged by one, and are lost with its disk; see "
    "kafka.min_insync_replicas in docs/operate/operations.md (1 says that it is meant so)"
)
_LEAST = "min.insync.replicas"
_HUNG_UP = "the connection is closed at once: does the port want another kafka.security_protocol?"


class BrokerAdmin:
    """An administrator of brokers, who knows why they refuse this process."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Start to connect in the background to the brokers at "host:port,host:port"."""
        self._bootstrap_servers = bootstrap_servers
        self._errors: dict[int, str] = {}
        # The callback holds a reference to the dict of errors and not to this object. So this object is freed, and its
        # connections end, as soon as its users drop it.
        noting = {"error_cb": partial(_note, self._errors)}
        self.client = AdminClient(client_config(bootstrap_servers) | noting, logger=kafka_logger())
        self.warning = ""
        """A warning if acknowledged events are lost with the disk of one broker, though nobody chose that."""
        self.brokers: frozenset[tuple[str, int]] = frozenset()
        """The hosts and ports of all brokers that have been there."""
        self._least: int | None = None

    def cluster(self, timeout_s: float) -> ClusterMetadata:
        """Return the brokers and topics. Raises `UnavailableError` with the reason and the setting to change."""
        try:
            found = self.client.list_topics(timeout=timeout_s)
        except KafkaException as error:
            # During the poll librdkafka calls `_note` with the reasons.
            self.client.poll(0)
            reason = self.refusal() or next(iter(self._errors.values()), _reason(error))
            raise UnavailableError(f"no Kafka broker answers at {self._bootstrap_servers} ({reason})") from error
        self.client.poll(0)
        self._errors.clear()
        self.brokers |= {(str(broker.host), broker.port) for broker in found.brokers.values()}
        self.warning = self._warning(found)
        return found

    def _warning(self, found: ClusterMetadata) -> str:
        # The topic of dead letters is checked in place of all topics: it exists from the first start on, and gets as
        # many replicas as all others.
        made = found.topics.get(DEAD_LETTERS)
        settings = settings_of(self._bootstrap_servers)
        if made is None or not made.partitions:
            return ""
        if _is_alone(made):
            return ALONE if settings.replication_factor != 1 else ""
        if settings.replication_factor != 1:
            alone = sorted(name for name, topic in found.topics.items() if is_own_topic(name) and _is_alone(topic))
            if alone:
                more = f" and {len(alone) - _NAMED} more" if len(alone) > _NAMED else ""
                return SOME_ALONE.format(", ".join(alone[:_NAMED]) + more)
        return ONE_SUFFICES if settings.min_insync_replicas != 1 and self._acknowledging() == 1 else ""

    def _acknowledging(self) -> int:
        """Return how many brokers must have an event before it is acknowledged; 0 if they don't tell.

        Asks until there is an answer, which may be that this account isn't told.
        """
        if self._least is None:
            resource = ConfigResource(ConfigResource.Type.TOPIC, DEAD_LETTERS)
            (answer,) = self.client.describe_configs([resource], request_timeout=ANSWER_TIMEOUT_S).values()
            try:
                self._least = int(answer.result()[_LEAST].value)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    self._least = 0
        return self._least or 0

    def refusal(self) -> str | None:
        """Return why the brokers refuse the settings, as far as the last calls have shown."""
        for text in self._errors.values():
            for part, remedy in _REMEDIES.items():
                if part in text:
                    return f"{remedy}; {text}"
        return None

    @property
    def is_away(self) -> bool:
        """True if the last calls have shown that no broker can be reached."""
        return KafkaError._ALL_BROKERS_DOWN in self._errors  # noqa: SLF001 (its public name)

    def problem(self) -> str | None:
        """Return why the brokers can't be used, None if they can."""
        try:
            self.cluster(ANSWER_TIMEOUT_S)
        except UnavailableError as error:
            return str(error)
        return None


def _is_alone(topic: TopicMetadata) -> bool:
    return any(len(partition.replicas) == 1 for partition in topic.partitions.values())


def _note(errors: dict[int, str], error: KafkaError) -> None:
    """Keep the newest text of each kind of error; librdkafka has none if brokers close a connection at once."""
    errors[error.code()] = _HUNG_UP if error.code() == KafkaError._ALL_BROKERS_DOWN else error.str()  # noqa: SLF001 (its public name)


def check_access(bootstrap_servers: str) -> None:
    """Connect once, at the start of a process; brokers that can't be reached at all are left to its later attempts.

    Raises:
        ConfigurationError: The brokers refuse the settings: the password, the certificate or the protocol.
    """
    admin = BrokerAdmin(bootstrap_servers)
    for wait_s in LOOKS_S:
        try:
            admin.cluster(wait_s)
        except UnavailableError as error:
            if admin.refusal() is not None:
                raise ConfigurationError(str(error)) from error
            if not admin.is_away:
                continue
        return


def ensure_topics(
    bootstrap_servers: str,
    names: Iterable[str],
    partitions: int,
    *,
    timeout_s: float = 30.0,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create the topics that don't exist yet and wait until all have leaders; those that exist stay as they are.

    The settings say how many brokers keep a new topic (`kafka.replication_factor`); by default the brokers decide.

    Args:
        bootstrap_servers: The broker, "host:port".
        names: Names of the topics.
        partitions: How many partitions a new topic gets.
        timeout_s: How long to wait for the broker and for the leaders, in seconds.
        config: Settings of a new topic that override `TOPIC_CONFIG`.

    Raises:
        UnavailableError: The broker can't be reached, refuses, or has no leaders in time.
    """
    wanted = set(names)
    if not wanted:
        return
    admin = BrokerAdmin(bootstrap_servers)
    deadline = time.monotonic() + timeout_s
    new = wanted - _with_leaders(admin, deadline).keys()
    if not new:
        return
    kafka = settings_of(bootstrap_servers)
    least = {} if kafka.min_insync_replicas is None else {_LEAST: str(kafka.min_insync_replicas)}
    topics = [
        NewTopic(
            name,
            num_partitions=partitions,
            # -1 leaves the number to the brokers.
            replication_factor=kafka.replication_factor or -1,
            config={**TOPIC_CONFIG, **least, **(config or {})},
        )
        for name in sorted(new)
    ]
    left_s = max(1.0, deadline - time.monotonic())
    created = admin.client.create_topics(topics, operation_timeout=left_s, request_timeout=left_s)
    _settle(created, KafkaError.TOPIC_ALREADY_EXISTS, "create")
    while True:
        ready = _with_leaders(admin, deadline)
        if new <= ready.keys() and _answer(admin.client, {name: ready[name] for name in new}):
            return
        if time.monotonic() > deadline:
            raise UnavailableError(f"the topics {', '.join(sorted(new))} aren't ready after {timeout_s:g} s")
        time.sleep(POLL_S)


def _with_leaders(admin: BrokerAdmin, deadline: float) -> dict[str, list[int]]:
    """Return the topics whose partitions all have leaders, each with its partitions."""
    topics = admin.cluster(max(0.1, deadline - time.monotonic())).topics
    return {
        name: list(topic.partitions)
        for name, topic in topics.items()
        if topic.error is None and topic.partitions and all(p.leader >= 0 for p in topic.partitions.values())
    }


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
    return frozenset(BrokerAdmin(bootstrap_servers).cluster(timeout_s).topics)
