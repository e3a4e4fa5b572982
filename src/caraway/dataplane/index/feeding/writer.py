"""Writing batches of records to the index, so that repeated delivery changes nothing (docs/inside/records.md)."""

import logging
from collections.abc import Callable, Sequence

import msgspec
from rocksdict import WriteBatch

from caraway.dataplane.index.records.columns import ColumnReader
from caraway.dataplane.index.records.delivery import Applied, Delivered, Puts, Single
from caraway.dataplane.index.records.removal import known_erasures, note_erasure
from caraway.dataplane.index.records.versions import VersionFeed
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.index.windows.aggregate_inputs import AggregateInputFeed
from caraway.dataplane.index.windows.pyramid import CACHED_TILES, TileCache
from caraway.dataplane.topics.blocks import is_block, split
from caraway.dataplane.topics.erased_keys import ErasedKeys, Hides, decode_erasure, is_erasure
from caraway.dataplane.topics.identity import position_id, position_ids, spelled
from caraway.dataplane.topics.markers import ARRIVAL_KEY, is_marker
from caraway.dataplane.topics.reader import Message
from caraway.errors import InvalidInputError
from caraway.graph.plan.model import IndexKind, IndexPlan

LOGGER = logging.getLogger(__name__)

# The most unreadable records of a batch for each of which a warning is logged; further ones are only counted.
LOGGED_REFUSALS = 5

# Is called with the arrivals of markers (`caraway.dataplane.topics.markers`) that were read from a topic.
NoteArrivals = Callable[[str, Sequence[Message]], object]
# A feed of an index's records: `read` and `complete` prepare them for `apply` and `put`, which add them to a batch.
Feed = VersionFeed | AggregateInputFeed


class IndexWriter:
    """A writer of records to the index. One thread at a time may use it, and no other writer may write its assets."""

    def __init__(
        self,
        store: IndexStore,
        *,
        cached_tiles: int = CACHED_TILES,
        erased: ErasedKeys | None = None,
        note_arrivals: NoteArrivals | None = None,
    ) -> None:
        """Write to `store`, keeping up to `cached_tiles` tiles decoded.

        Rows of `erased` keys are left out. `note_arrivals` is called with arrivals of markers before the batch with
        them is written.
        """
        self._store = store
        self._note_arrivals = note_arrivals
        self._erased = ErasedKeys(dict) if erased is None else erased
        self._tiles = TileCache(store, cached_tiles)
        self._feeds: dict[bytes, tuple[IndexPlan, Feed, ColumnReader | None]] = {}

    def apply(self, plan: IndexPlan, messages: Sequence[Message]) -> Applied:
        """Apply the records of messages of the plan's topic, in one write together with the offsets behind them.

        A record that can't be read is logged, counted and left out. Applying a record again changes nothing. Rows of
        erased keys add nothing; earlier rows of these keys are removed by `caraway.dataplane.index.records.removal`.

        Raises `UnavailableError` if the database is damaged or refuses; nothing was written to it then.
        """
        feed, reader = self._feed(plan)
        applied = Applied()
        batch = self._store.batch()
        erasures = [value for key, value, _, _ in messages if is_erasure(key)]
        if erasures:
            self._note(plan, erasures, batch)
        rows = [m for m in messages if m[0] is None or not (is_erasure(m[0]) or is_marker(m[0]))]
        if self._note_arrivals is not None and len(rows) + len(erasures) < len(messages):
            arrivals = [message for message in messages if message[0] == ARRIVAL_KEY]
            if arrivals:
                self._note_arrivals(plan.topic, arrivals)
        records: Puts | Sequence[Delivered] | None = None
        if reader is not None and self._hides(plan) is None:
            records = reader.read(rows)
        if records is None:
            singles = [single for message in rows for single in singles_of(message)]
            records = self._read(plan, singles, applied)
        for partition, offset in _behind(messages).items():
            self._store.put_offset(batch, plan.asset, partition, offset)
        self._write(feed, records, batch, applied)
        return applied

    def apply_single(self, plan: IndexPlan, single: Single) -> Applied:
        """Apply one record of a block, without the offset behind it; otherwise like `apply`."""
        applied = Applied()
        feed, _ = self._feed(plan)
        delivered = self._read(plan, [single], applied)
        self._write(feed, delivered, self._store.batch(), applied)
        return applied

    def _write(self, feed: Feed, records: Puts | Sequence[Delivered], batch: WriteBatch, applied: Applied) -> None:
        """Apply records, and write what they change together with the rest of the batch."""
        try:
            if isinstance(records, Puts):
                applied.newest_ingested_us = records.newest_ingested_us
                feed.put(records, batch, applied)
            else:
                feed.apply(records, batch, applied)
            self._tiles.flush(batch)
            self._store.write(batch)
        except BaseException:
            self._tiles.discard()
            raise

    def _hides(self, plan: IndexPlan) -> Hides | None:
        """Return the check whether a key is erased, None if none is; an index that emits rows keeps its entries."""
        if plan.emits is not None:
            return None
        return self._erased.hides(plan.topic, plan.schema.keys, strict=False)

    def _read(self, plan: IndexPlan, singles: Sequence[Single], applied: Applied) -> list[Delivered]:
        """Return the records that can be read."""
        feed, _ = self._feed(plan)
        hides = self._hides(plan)
        delivered: list[Delivered] = []
        for key, value, position in singles:
            try:
                # A record without a value is decoded as empty bytes, which fails like any other invalid bytes.
                record = feed.read(key, value or b"", position)
            except InvalidInputError as error:
                applied.refused += 1
                if applied.refused <= LOGGED_REFUSALS:
                    LOGGER.warning("skipped %s/%s: %s", plan.topic, spelled(position), error)
                continue
            if hides is not None and hides(record.key):
                record = msgspec.structs.replace(record, erased=True)
            delivered.append(record)
        if delivered:
            applied.newest_ingested_us = max(d.record.ingested for d in delivered)
        return delivered

    def prepare(self, plan: IndexPlan) -> None:
        """Prepare to apply records of a plan. Raises `InvalidInputError` for a plan that can't be indexed."""
        self._feeds.pop(plan.asset, None)
        self._feed(plan)

    def skip(self, plan: IndexPlan, message: Message) -> None:
        """Skip a record: write only the offset behind it."""
        batch = self._store.batch()
        self._store.put_offset(batch, plan.asset, message[2], message[3] + 1)
        self._store.write(batch)

    def take_over(self) -> None:
        """Drop decoded tiles, because another writer may have changed the database."""
        self._tiles.discard()

    def forget(self, asset: bytes) -> None:
        """Remove all data and offsets of an asset."""
        self._feeds.pop(asset, None)
        self._tiles.discard()
        self._store.drop(asset)

    def _note(self, plan: IndexPlan, values: Sequence[bytes | None], batch: WriteBatch) -> None:
        """Store erasures of keys, whose entries are to be removed; an index that emits rows keeps its entries."""
        for value in values:
            try:
                erasure = decode_erasure(value)
            except InvalidInputError:
                LOGGER.exception("skipped a record on %s", plan.topic)
                continue
            # The index finds entries by their keys only. If a key was erased by another column, it is built anew.
            by_key = {key.name for key in plan.schema.keys} >= set(erasure.columns)
            if by_key and plan.emits is None:
                note_erasure(plan.asset, erasure, batch)
                self._erased.add(plan.topic, [erasure])

    def _feed(self, plan: IndexPlan) -> tuple[Feed, ColumnReader | None]:
        """Return the feed of an index, and the reader of records in columns if they are never revised."""
        known = self._feeds.get(plan.asset)
        if known is not None and (known[0] is plan or known[0] == plan):
            return known[1], known[2]
        self._erased.add(plan.topic, known_erasures(self._store, plan.asset))
        feed: Feed = (
            VersionFeed(plan, self._store)
            if plan.kind is IndexKind.VERSIONS
            else AggregateInputFeed(plan, self._store, self._tiles)
        )
        reader = None if plan.revised else ColumnReader(plan.schema, feed)
        self._feeds[plan.asset] = plan, feed, reader
        return feed, reader


def singles_of(message: Message) -> list[Single]:
    """Return the records of a message one by one; a damaged block is returned as if it were a record."""
    key, value, partition, offset = message
    if key is None and value is not None and is_block(value):
        try:
            records = split(value)
        except InvalidInputError:
            pass
        else:
            return [(None, *pair) for pair in zip(records, position_ids(offset, partition, len(records)), strict=True)]
    return [(key, value, position_id(offset, partition))]


def _behind(messages: Sequence[Message]) -> dict[int, int]:
    """Return the offset behind the last message of each partition."""
    offsets: dict[int, int] = {}
    for _, _, partition, offset in messages:
        if offset >= offsets.get(partition, 0):
            offsets[partition] = offset + 1
    return offsets
