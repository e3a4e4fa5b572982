"""Insert deltas: the rows that records of a topic put into a dataset, each once.

Deletions and retractions aren't insert deltas. If a record may come again, its identity and revision say whether it
has come already (docs/inside/records.md). A record with a Kafka key comes to the same partition again, so its deltas
depend on the records of this partition in their order. A record without a key may come to any partition.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from caraway.dataplane.topics.blocks import parts_of
from caraway.dataplane.topics.codec import PUT, Record, RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.reader import Message
from caraway.errors import InvalidInputError
from caraway.graph.plan.model import CheckPlan, RecordSchema
from caraway.offline.monitoring.quality.seen import Entry, SeenRecords, digest_of

LOG = structlog.get_logger(__name__)

# The first byte of the Kafka keys of records without a row: markers, arrivals and erasures (docs/inside/records.md).
CONTROL = b"\xc1"
# Warnings are logged for at most this many unreadable records.
LOGGED_REFUSALS = 5
_ENCODE = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Deltas:
    """Rows that were put into a dataset.

    Attributes:
        times_us: Their event times in microseconds since the epoch.
        rows: Their columns in stored form, in the order of the schema.
        ingested_us: The times of their ingestion in microseconds since the epoch.
        schema: The schema, which has all columns but the timestamp.
    """

    times_us: list[int] = field(default_factory=list)
    rows: list[Sequence[Any]] = field(default_factory=list)
    ingested_us: list[int] = field(default_factory=list)
    schema: RecordSchema | None = None

    def columns(self, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return some columns; the timestamp may be one of them."""
        if self.schema is None:
            return {name: [] for name in names}
        places = {column.name: place for place, column in enumerate(self.schema.columns)}
        return {name: self._column(places, name) for name in names}

    def _column(self, places: Mapping[str, int], name: str) -> list[Any]:
        place = places.get(name)
        return self.times_us if place is None else [row[place] for row in self.rows]


class DeltaReader:
    """Makes insert deltas of the messages of the topic of a check. Not thread safe."""

    def __init__(self, plan: CheckPlan, seen: SeenRecords | None) -> None:
        """Prepare; `seen` is needed if the topic's records may come again."""
        self._plan = plan
        self._seen = seen
        self._codec = RecordCodec(plan.topic.schema)
        self._has_keys = bool(plan.topic.schema.keys)
        self._refused = 0

    def deltas(self, messages: Sequence[Message], counted: Mapping[int, int]) -> Deltas:
        """Return the insert deltas of messages.

        Args:
            messages: Messages, those of a partition in their order.
            counted: The offset before which messages were counted, by partition. They are only noted as seen.
        """
        if self._seen is None:
            records = [record for message in messages for record in self._records(message) if _is_put(record)]
        else:
            records = self._not_seen(self._seen, messages, counted)
        ingested = [record.ingested for record in records]
        rows: list[Sequence[Any]] = [record.row or () for record in records]
        return Deltas([record.time for record in records], rows, ingested, self._plan.schema)

    def _not_seen(self, seen: SeenRecords, messages: Sequence[Message], counted: Mapping[int, int]) -> list[Record]:
        entries: list[Entry] = []
        candidates: list[tuple[Record, bool]] = []
        for message in messages:
            _, _, partition, offset = message
            # If the dataset has keys, a record with the same identity on another partition has another key, so it is
            # another row.
            place = partition if self._has_keys else 0
            for number, record in enumerate(self._records(message)):
                record_id = record.id or position_id(offset, partition, number)
                row = _digest(record, seen) if _is_put(record) else None
                entries.append((place, record_id, record.rev or b"", row))
                candidates.append((record, offset >= counted.get(partition, 0)))
        new = seen.add(entries)
        return [record for (record, counts), is_new in zip(candidates, new, strict=True) if is_new and counts]

    def _records(self, message: Message) -> list[Record]:
        key, value = message[0], message[1] or b""
        if key is not None and key[:1] == CONTROL:
            return []
        try:
            return self._codec.decode_message(value)
        except InvalidInputError:
            # `decode_message` only decodes messages whose records are all puts. Messages with other records, or with
            # unreadable ones, are decoded record by record.
            return list(self._one_by_one(value, message))

    def _one_by_one(self, value: bytes, message: Message) -> Iterator[Record]:
        for part in parts_of(value):
            try:
                yield self._codec.decode_value(part)
            except InvalidInputError as error:
                self._refused += 1
                if self._refused <= LOGGED_REFUSALS:
                    LOG.warning(
                        "a record can't be read, so it isn't checked",
                        topic=self._plan.topic.name,
                        partition=message[2],
                        offset=message[3],
                        reason=str(error),
                    )


def _digest(record: Record, seen: SeenRecords) -> bytes:
    # A row that is never revised is never compared with a former one, so no hash of it is made.
    return digest_of(_ENCODE(record.time), _ENCODE(record.row)) if seen.revised else b""


def _is_put(record: Record) -> bool:
    return record.op == PUT and record.row is not None
