"""The Kafka topics of the datasets: their records, creating them, writing to them (docs/records.md)."""

from caraway.topics.admin import ensure_topics
from caraway.topics.codec import DELETE, FORMAT, PUT, RETRACT, Record, RecordCodec
from caraway.topics.dead_letters import DEAD_LETTERS, MAX_PAYLOAD
from caraway.topics.identity import ID_BYTES, position_id, position_of
from caraway.topics.markers import ARRIVAL_KEY, MARKER_KEY, Arrival, decode_arrival, is_marker
from caraway.topics.producer import TopicItem, TopicWriter

__all__ = [
    "ARRIVAL_KEY",
    "DEAD_LETTERS",
    "DELETE",
    "FORMAT",
    "ID_BYTES",
    "MARKER_KEY",
    "MAX_PAYLOAD",
    "PUT",
    "RETRACT",
    "Arrival",
    "Record",
    "RecordCodec",
    "TopicItem",
    "TopicWriter",
    "decode_arrival",
    "ensure_topics",
    "is_marker",
    "position_id",
    "position_of",
]
