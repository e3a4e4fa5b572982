"""The writer of Kafka topics: each batch is a transaction, which also has the position of the sink.

The position is the metadata of an offset that the transaction commits for a consumer group of the sink. So the broker
takes both or none of them, and no other reader of the group exists. Brokers take 4,096 bytes there by default, so the
position is compressed; that is enough for some 400 partitions. A broker that forbids transactions gets each change
at least once.
"""

import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from caraway.dataplane.addresses.reach import check_brokers
from caraway.dataplane.sinks.changes import Change
from caraway.dataplane.sinks.envelopes import Envelopes
from caraway.dataplane.sinks.writer import AT_LEAST_ONCE, EXACTLY_ONCE, Batch, Refusal, SignIn, Writing
from caraway.dataplane.topics.connection import kafka_logger
from caraway.dataplane.topics.external import REMEDIES, external_settings, place_of, text_of
from caraway.errors import CommitError, UnavailableError
from caraway.graph.connectors import KafkaConnector
from caraway.graph.plan.model import SinkPlan
from caraway.graph.systems import KafkaSystem

ANSWER_S = 10.0
# The seconds for which a transaction may stay open after its owner has died; then the broker aborts it.
TRANSACTION_S = 60.0
DELIVERY_S = 25.0
# At most this many kB of envelopes wait in memory for the broker.
BUFFER_KB = 16 * 1024
# The errors by which a broker refuses transactions of this user, or transactions in general.
FORBIDDEN = frozenset(
    {
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001 (its public name)
    }
)
# The errors that concern a single record, which the broker will never accept.
REFUSED = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE, KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD}
)
# The errors of changes that weren't sent, because another change of their transaction has failed.
GIVEN_UP = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001 (their public names)
# The remedy if the position is larger than the metadata of an offset may be.
TOO_LARGE = (
    "; the position on the dataset's topic, which has many partitions, doesn't fit beside an offset: raise "
    "offset.metadata.max.bytes of these brokers, or give the dataset a new version and its topic fewer partitions "
    "(kafka.partitions)"
)
# A batch is begun anew at most this many times because of `GIVEN_UP` errors. After that the write fails.
MOST_RESUMED = 5


class KafkaWriter:
    """Writes changes to a topic, by key, in the order of each key."""

    remembers = False

    def __init__(self, writing: Writing) -> None:
        """Connect. Raises `UnavailableError` if the broker doesn't answer or refuses, or a secret is missing."""
        connector = writing.plan.sink.connector
        assert isinstance(connector, KafkaConnector)  # noqa: S101 (the planner chooses the writer)
        self._writing = writing
        self._topic = connector.topic
        self._envelopes = Envelopes(writing.plan, writing.branch, writing.product)
        self._resumed = 0
        self._problem = _Problem()
        self._settings = {**_settings_of(connector, writing.sign_in), "error_cb": self._problem.note}
        self._where = place_of(_system_of(connector))
        self._servers = _system_of(connector).bootstrap_servers
        self._group = f"caraway-{writing.name}"
        try:
            self._producer, self._transactional = self._connected()
            # The consumer reads nothing: it only belongs to the group whose offsets the transactions commit.
            consuming = {"group.id": self._group, "enable.auto.commit": False, "isolation.level": "read_committed"}
            config = {**self._settings, **consuming}
            check_brokers(self._servers)
            self._consumer = Consumer(config, logger=kafka_logger())
        except KafkaException as error:
            raise self._unavailable(error) from None

    @property
    def guarantee(self) -> str:
        """The guarantee, which is "exactly once" if the broker takes transactions."""
        return EXACTLY_ONCE if self._transactional else AT_LEAST_ONCE

    def positions(self) -> Mapping[int, int]:
        """Return the offsets that the last transaction has."""
        if not self._transactional:
            return {}
        try:
            (found,) = self._consumer.committed([TopicPartition(self._topic, 0)], timeout=ANSWER_S)
        except KafkaException as error:
            raise self._unavailable(error) from None
        if found.error is not None:
            raise self._unavailable(KafkaException(found.error))
        if not found.metadata:
            return {}
        positions: Mapping[str, int] = orjson.loads(zlib.decompress(b85decode(found.metadata)))
        return {int(partition): offset for partition, offset in positions.items()}

    def write(self, batch: Batch) -> None:
        """Write changes in one transaction; see `SinkWriter.write`."""
        refused: dict[int, str] = {}
        # The numbers of changes that the broker refused together in one request, so that any of them may be the cause.
        suspects: set[int] = set()
        self._resumed = 0
        self._problem.clear()
        try:
            while not self._written(batch, refused, suspects):
                pass
        except KafkaException as error:
            raise self._unavailable(error) from None
        batch.sent = len(batch.changes)

    def close(self) -> None:
        """End the connection, without waiting for what isn't acknowledged."""
        self._producer.purge()
        self._producer.flush(1.0)
        self._consumer.close()

    def _written(self, batch: Batch, refused: dict[int, str], suspects: set[int]) -> bool:
        """Write changes but the refused ones, suspects alone; return False if more are refused: nothing was written."""
        producer, transactional = self._producer, self._transactional
        if transactional:
            producer.begin_transaction()
        # Each attempt has its own dict, since delivery reports of an aborted attempt may still arrive during the next
        # one.
        failed: dict[int, KafkaError] = {}
        for number, change in enumerate(batch.changes):
            if number in suspects:
                self._flush()
            if failed and transactional:
                # A transaction in which one message has failed can only be aborted, so no further messages are sent in
                # it.
                break
            if number not in refused:
                self._produce(number, change, refused, failed)
            if number in suspects:
                self._flush()
        self._flush()
        if failed and self._is_resumed(failed.values()):
            producer.abort_transaction(ANSWER_S)
            return False
        for number, error in failed.items():
            if error.code() in GIVEN_UP and any(other.code() in REFUSED for other in failed.values()):
                continue
            if error.code() not in REFUSED:
                raise KafkaException(error)
            if number in suspects or not transactional:
                refused[number] = error.str()
            suspects.add(number)
        if failed and transactional:
            producer.abort_transaction(ANSWER_S)
            return False
        if refused:
            # Dead letters must be durable before the position moves behind their changes. Otherwise a crash in between
            # would lose these changes.
            self._writing.refuse([Refusal(batch.changes[number], reason) for number, reason in refused.items()])
        if transactional:
            text = orjson.dumps({str(partition): offset for partition, offset in batch.reached.items()})
            position = b85encode(zlib.compress(text)).decode()
            # The position is stored as the metadata. The offset beside it only counts the messages, for people who look
            # at the consumer group.
            offset = TopicPartition(self._topic, 0, sum(batch.reached.values()), position)
            producer.send_offsets_to_transaction([offset], self._consumer.consumer_group_metadata(), ANSWER_S)
            producer.commit_transaction(ANSWER_S)
        return True

    def _is_resumed(self, errors: Iterable[KafkaError]) -> bool:
        """Return whether to begin a transaction anew of which messages were given up, but none was refused.

        librdkafka may still be giving up the messages of an aborted transaction when the next one begins.
        """
        if not self._transactional or any(error.code() not in GIVEN_UP for error in errors):
            return False
        self._resumed += 1
        return self._resumed <= MOST_RESUMED

    def _flush(self) -> None:
        if self._producer.flush(DELIVERY_S):
            raise UnavailableError(f"{self._where}: it didn't take all changes within {DELIVERY_S:g} s")

    def _produce(self, number: int, change: Change, refused: dict[int, str], failed: dict[int, KafkaError]) -> None:
        key, value = self._envelopes.key(change), self._envelopes.value(change)

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed[number] = error

        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=delivered)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                if error.args[0].code() not in REFUSED:
                    raise
                refused[number] = error.args[0].str()
                return
            else:
                self._producer.poll(0)
                return

    def _connected(self) -> tuple[Producer, bool]:
        config = {
            **self._settings,
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "linger.ms": 5,
            "queue.buffering.max.kbytes": BUFFER_KB,
            "message.timeout.ms": int(DELIVERY_S * 1000),
        }
        transactions = {"transactional.id": self._group, "transaction.timeout.ms": int(TRANSACTION_S * 1000)}
        producer = Producer(config | transactions, logger=kafka_logger())
        try:
            # The call aborts a transaction that an earlier owner has left open. After it the broker refuses
            # transactions of that owner.
            producer.init_transactions(ANSWER_S)
        except KafkaException as error:
            if error.args[0].code() not in FORBIDDEN:
                producer.poll(0)
                raise
            # Without transactions each request has only one change. If a broker refused one change of a larger request,
            # it would refuse the request's other changes, too. Sent again, these would come behind later changes of
            # their keys.
            single = config | {"batch.num.messages": 1}
            return Producer(single, logger=kafka_logger()), False
        return producer, True

    def _unavailable(self, error: KafkaException) -> UnavailableError:
        remedy = TOO_LARGE if error.args[0] == KafkaError.OFFSET_METADATA_TOO_LARGE else ""
        return UnavailableError(f"{self._where}: {self._problem.text or text_of(error)}{remedy}")


class _Problem:
    """Why a client can't sign in, which librdkafka tells beside the call that it lets time out."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget the errors, which are over."""
        self.text, self._has_remedy = "", False

    def note(self, error: KafkaError) -> None:
        """Take an error of a connection: the first one, or else the first one with a remedy."""
        has_remedy = error.code() in REMEDIES
        if not self.text or (has_remedy and not self._has_remedy):
            self.text, self._has_remedy = error.str() + REMEDIES.get(error.code(), ""), has_remedy


def _system_of(connector: KafkaConnector) -> KafkaSystem:
    assert isinstance(connector.system, KafkaSystem)  # noqa: S101 (the planner refuses others)
    return connector.system


def _settings_of(connector: KafkaConnector, sign_in: SignIn) -> dict[str, Any]:
    """Return the settings of each client of a sink's brokers; raises as `sign_in.resolve` does."""
    settings = external_settings(_system_of(connector), sign_in.resolve, sign_in.ca_file)
    return {**settings, "reconnect.backoff.max.ms": 1000}


def check(plan: SinkPlan, sign_in: SignIn) -> None:
    """Check that the topic of a sink exists.

    Raises:
        CommitError: It doesn't, or its brokers can't be reached.
        UnavailableError, UnknownEntityError: A secret can't be looked up.
    """
    connector = plan.sink.connector
    assert isinstance(connector, KafkaConnector)  # noqa: S101 (the planner chooses the writer)
    where, settings = place_of(_system_of(connector)), _settings_of(connector, sign_in)
    problem = _Problem()
    try:
        config = {**settings, "error_cb": problem.note}
        check_brokers(_system_of(connector).bootstrap_servers)
        producer = Producer(config, logger=kafka_logger())
        try:
            topics = producer.list_topics(connector.topic, timeout=ANSWER_S).topics
        finally:
            producer.poll(0)
    except KafkaException as error:
        raise CommitError(f"{where}: {problem.text or text_of(error)}") from None
    found = topics[connector.topic]
    if found.error is not None or not found.partitions:
        raise CommitError(f"{where}: there is no topic {connector.topic}; create it, since a sink doesn't")
