"""Records of a topic as columns, which takes a fraction of the time of single ones."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from caraway.dataplane.index.records.delivery import Puts
from caraway.dataplane.topics.blocks import is_block, split
from caraway.dataplane.topics.codec import Record, RecordCodec
from caraway.dataplane.topics.identity import position_ids
from caraway.dataplane.topics.keys import MAX_KEY_BYTES
from caraway.dataplane.topics.reader import Message
from caraway.errors import InvalidInputError
from caraway.graph.plan.model import RecordSchema

# The encoded keys are kept until there are more than `KEPT_KEYS`; then all are dropped. A key of more than `KEPT_BYTES`
# bytes isn't kept.
KEPT_KEYS, KEPT_BYTES = 50_000, 100


class TakesColumns(Protocol):
    """A feed of an index, which takes the records."""

    def complete(self, puts: Puts, rows: Sequence[Sequence[Any]]) -> None:
        """Add to records what the index needs of their rows."""
        ...


class ColumnReader:
    """A reader of records that are never revised."""

    def __init__(self, schema: RecordSchema, feed: TakesColumns) -> None:
        self._codec = RecordCodec(schema)
        self._columns = len(schema.keys)
        self._feed = feed
        # The encoded Kafka keys: by the key's value if the dataset has one key column, or else by the tuple of its
        # values.
        self._known: dict[Hashable, bytes] = {}

    def read(self, messages: Sequence[Message]) -> Puts | None:
        """Return the records of some messages; None if one of them can't be read, or is no put that can be indexed."""
        try:
            return self._read(messages)
        except InvalidInputError:
            return None

    def _read(self, messages: Sequence[Message]) -> Puts | None:
        records: list[Record] = []
        data: list[bytes] = []
        keys: list[bytes] = []
        orders: list[bytes] = []
        decode = self._codec.decode_message
        for key, value, partition, offset in messages:
            found = decode(value or b"")
            records += found
            if is_block(value):
                data += split(value or b"")
                keys += self._encoded([record.row for record in found])
            elif key is None and self._columns:
                return None
            else:
                data.append(value or b"")
                keys.append(key or b"")
            positions = position_ids(offset, partition, len(found))
            orders += [record.id or position for record, position in zip(found, positions, strict=True)]
        if max(map(len, keys), default=0) > MAX_KEY_BYTES:
            return None
        newest = max((record.ingested for record in records), default=0)
        puts = Puts(keys, [record.time for record in records], orders, data, newest_ingested_us=newest)
        self._feed.complete(puts, [record.row or () for record in records])
        return puts

    def _encoded(self, rows: Sequence[Any]) -> list[bytes]:
        """Return the Kafka keys of rows. Those of frequent keys are kept, since encoding takes longer than a lookup."""
        known, encode, count = self._known, self._codec.encode_key, self._columns
        if len(known) > KEPT_KEYS:
            known.clear()
        values: list[Any] = [row[0] for row in rows] if count == 1 else [tuple(row[:count]) for row in rows]
        # For Python 1, 1.0 and True are equal. But all values of a column have one type, so a lookup can't find the key
        # of another value.
        find: Callable[[Any], bytes | None] = known.get
        try:
            found = list(map(find, values))
        except TypeError:
            # Lists and maps aren't hashable, so they can't be looked up, and each key is encoded.
            return [encode(row[:count]) or b"" for row in rows]
        for position, key in enumerate(found):
            if key is None:
                found[position] = made = encode(rows[position][:count]) or b""
                if len(made) <= KEPT_BYTES:
                    known[values[position]] = made
        return found  # type: ignore[return-value]
