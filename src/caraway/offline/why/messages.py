"""Single records of topics by their places: from the topics, with the marks of their sources, or from the archive."""

import time
from collections.abc import Iterable, Mapping

import polars as pl
from confluent_kafka import Consumer, KafkaException, TopicPartition

from caraway.dataplane.archive.store.columns import columns_of
from caraway.dataplane.archive.store.frames import control_types, frame_of
from caraway.dataplane.archive.store.model import table_path
from caraway.dataplane.archive.store.tables import ArchiveTable
from caraway.dataplane.topics.blocks import parts_of
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.ids import topic_id
from caraway.dataplane.topics.reader import COMMON, connected
from caraway.errors import InvalidInputError, UnavailableError
from caraway.expr.polars.values import from_polars, polars_type
from caraway.graph.plan.model import RecordSchema
from caraway.offline.why.sources import Found, Messages, Place

# The seconds for reading a topic's records from the broker. Records that aren't read by then come from the archive,
# without marks.
SECONDS = 10.0
POLL_SECONDS = 1.0


class TopicMessages(Messages):
    """Reads from the broker "host:port", and from the tables of an object store (the setting `objects`)."""

    def __init__(self, bootstrap_servers: str, objects_url: str) -> None:
        """Prepare; nothing is read yet."""
        self._servers = bootstrap_servers
        self._objects_url = objects_url

    def at(self, topic: str, schema: RecordSchema, places: Iterable[Place]) -> Mapping[Place, Found]:
        """Return records; see `Messages`.

        Raises `UnavailableError` if the broker or the object store doesn't answer.
        """
        wanted = set(places)
        found = self._on_topic(topic, schema, wanted)
        left = wanted - found.keys()
        return found | self._archived(topic, schema, left) if left else found

    def _on_topic(self, topic: str, schema: RecordSchema, places: set[Place]) -> dict[Place, Found]:
        codec, until = RecordCodec(schema), time.monotonic() + SECONDS
        found: dict[Place, Found] = {}
        consumer = connected(self._servers, COMMON | {"enable.partition.eof": True})
        try:
            begins: dict[int, int] = {}
            for partition, offset in sorted({place[:2] for place in places}):
                if time.monotonic() >= until:
                    break
                if partition not in begins:
                    begins[partition] = consumer.get_watermark_offsets(
                        TopicPartition(topic, partition), timeout=SECONDS
                    )[0]
                if offset >= begins[partition]:
                    found |= _message(consumer, codec, topic, partition, offset)
        except KafkaException as error:
            raise UnavailableError(f"topic {topic} can't be read: {error}") from error
        finally:
            consumer.close()
        return {place: record for place, record in found.items() if place in places}

    def _archived(self, topic: str, schema: RecordSchema, places: set[Place]) -> dict[Place, Found]:
        table = ArchiveTable.existing(self._objects_url, table_path(topic, topic_id(self._servers, topic)))
        if table is None:
            return {}
        columns = columns_of(schema)
        offsets = sorted({offset for _, offset, _ in places})
        files = table.files_within(columns.offset, offsets[0], offsets[-1])
        if not files:
            return {}
        types = {column.name: polars_type(column.dtype) for column in schema.columns} | control_types(columns)
        kept = pl.col(columns.offset).is_in(offsets)
        rows = frame_of(files, table.options(), list(types), kept).cast(pl.Schema(types))
        values = {column.name: from_polars(rows[column.name], column.dtype) for column in schema.columns}
        control = (columns.partition, columns.offset, columns.number)
        found: dict[Place, Found] = {}
        for row, place in enumerate(zip(*(rows[name].to_list() for name in control), strict=True)):
            if place in places:
                time_us = int(rows[columns.time].to_physical()[row])
                own = {name: column[row] for name, column in values.items()}
                found[place] = Found(
                    time_us=time_us,
                    ingested_us=int(rows[columns.ingested].to_physical()[row]),
                    row={schema.timestamp: time_us, **own},
                )
        return found


def _message(consumer: Consumer, codec: RecordCodec, topic: str, partition: int, offset: int) -> dict[Place, Found]:
    """Return the records of a message; nothing if it isn't there any more, or can't be read."""
    consumer.assign([TopicPartition(topic, partition, offset)])
    message = consumer.poll(POLL_SECONDS)
    if message is None or message.error() is not None or message.offset() != offset:
        return {}
    value = message.value()
    if value is None:
        return {}
    headers = message.headers() or []
    mark = _mark(headers.items() if isinstance(headers, dict) else headers)
    found: dict[Place, Found] = {}
    try:
        for number, part in enumerate(parts_of(value)):
            record = codec.decode_value(part)
            if record.row is None:
                continue
            names = [column.name for column in codec.schema.columns]
            row = {codec.schema.timestamp: record.time, **dict(zip(names, record.row, strict=True))}
            found[partition, offset, number] = Found(
                time_us=record.time, ingested_us=record.ingested, row=row, mark=mark
            )
    except InvalidInputError:
        return {}
    return found


def _mark(headers: Iterable[tuple[str, object]]) -> str | None:
    """Return what was written beside a record about its source."""
    texts = [
        f"{name}={value.decode(errors='replace') if isinstance(value, bytes) else value}"
        for name, value in headers
        if name.startswith("caraway")
    ]
    return "; ".join(texts) or None
