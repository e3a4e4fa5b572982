"""The first and last offsets of topics."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from caraway.dataplane.topics.connection import client_config, kafka_logger
from caraway.errors import UnavailableError

ANSWER_TIMEOUT_S = 10.0
# Brokers answer with these errors while a partition gets a leader: after its topic was created, or after a broker
# failed. The request is repeated then.
MOVING = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)

# Offsets by the name of the topic and the number of the partition.
Offsets = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class LedEnd:
    """The end of a partition, and the epoch of its leader at that moment; -1 if the broker doesn't tell."""

    offset: int
    epoch: int


class TopicEnds:
    """Asks the broker where topics begin and end. Not thread safe."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Use the broker "host:port"; the first question connects to it."""
        self._bootstrap_servers = bootstrap_servers
        self._admin = AdminClient(client_config(bootstrap_servers), logger=kafka_logger())

    def ends(self, names: Iterable[str]) -> Offsets:
        """Return the offset that the next record of each partition will have; topics that don't exist are left out.

        Raises `UnavailableError` if the broker doesn't answer.
        """
        return self._ask(names, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def led_ends(self, names: Iterable[str]) -> Mapping[str, Mapping[int, LedEnd]]:
        """Return the end of each partition with the epoch of its leader; otherwise like `ends`."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return {
            topic: {p: LedEnd(info.offset, -1 if info.leader_epoch is None else info.leader_epoch) for p, info in infos}
            for topic, infos in ((topic, found.items()) for topic, found in self._infos(names, latest).items())
        }

    def beginnings(self, names: Iterable[str]) -> Offsets:
        """Return the offset of the oldest record of each partition; otherwise like `ends`."""
        return self._ask(names, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def since(self, names: Iterable[str], at: float) -> Offsets:
        """Return the offset of the oldest record that was written at or after a time, or the end if there is none.

        Args:
            names: The topics.
            at: The time in seconds since the epoch, by the clock of the producers.

        Raises `UnavailableError` if the broker doesn't answer.
        """
        found = self._ask(names, OffsetSpec.for_timestamp(round(1000 * at)))
        ends = self.ends(found)
        return {
            topic: {p: ends[topic][p] if offset < 0 else offset for p, offset in offsets.items()}
            for topic, offsets in found.items()
            if topic in ends
        }

    def _ask(self, names: Iterable[str], spec: OffsetSpec) -> Offsets:
        return {t: {p: info.offset for p, info in found.items()} for t, found in self._infos(names, spec).items()}

    def _infos(self, names: Iterable[str], spec: OffsetSpec) -> Mapping[str, Mapping[int, ListOffsetsResultInfo]]:
        wanted = set(names)
        if not wanted:
            return {}
        try:
            return while_moving()(self._ask_once, wanted, spec)
        except KafkaException as error:
            raise UnavailableError(f"no Kafka broker answers at {self._bootstrap_servers}: {error}") from error

    def _ask_once(self, wanted: Collection[str], spec: OffsetSpec) -> Mapping[str, Mapping[int, ListOffsetsResultInfo]]:
        # Each attempt lists the topics again and asks only for those that exist, because the last attempt may have
        # failed for a topic that was removed meanwhile.
        known = self._admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics
        asked = {TopicPartition(name, p): spec for name in known.keys() & wanted for p in known[name].partitions}
        found: dict[str, dict[int, ListOffsetsResultInfo]] = {}
        if asked:
            for position, future in self._admin.list_offsets(asked, request_timeout=ANSWER_TIMEOUT_S).items():
                found.setdefault(position.topic, {})[position.partition] = future.result()
        return found


def is_behind(positions: Mapping[int, int], offsets: Mapping[int, int]) -> bool:
    """Return whether positions on a topic are at or behind some offsets in each of their partitions."""
    return all(positions.get(partition, 0) >= offset for partition, offset in offsets.items())


def while_moving(timeout_s: float = ANSWER_TIMEOUT_S) -> Retrying:
    """Return a function that repeats a request, for `timeout_s`, while a partition is about to get a leader."""
    return Retrying(
        retry=retry_if_exception(is_moving),
        stop=stop_after_delay(timeout_s),
        wait=wait_exponential(multiplier=0.01, max=0.5),
        reraise=True,
    )


def is_moving(error: BaseException) -> bool:
    """Return whether a partition is about to get a leader, so that the request can be repeated."""
    return (
        isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError) and error.args[0].code() in MOVING
    )
