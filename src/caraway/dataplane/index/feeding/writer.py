"""Writing batches of records to the index, so that repeated delivery changes nothing (docs/inside/records.md)."""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from rocksdict import WriteBatch

from caraway.dataplane.index.records.columns import ColumnReader
from caraway.dataplane.index.records.delivery import Applied, Delivered, Puts, Single
from caraway.dataplane.index.records.removal import known_erasures, note_erasure
from caraway.dataplane.index.records.versions import VersionFeed
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.index.windows.aggregate_feed import AggregateInputFeed
from caraway.dataplane.index.windows.pyramid import CACHED_TILES, TileCache
from caraway.dataplane.topics.blocks import is_block, parts_of
from caraway.dataplane.topics.erased_keys import ErasedKeys, Hides, decode_erasure, is_erasure
from caraway.dataplane.topics.identity import position_id, position_ids
from caraway.dataplane.topics.left_out import LeaveOut, LeftOut, log_left_out
from caraway.dataplane.topics.markers import ARRIVAL_KEY, is_marker
from caraway.dataplane.topics.reader import Message
from caraway.errors import InvalidInputError
from caraway.graph.plan.model import IndexKind, IndexPlan

# A function that is called with the arrivals of markers (`caraway.dataplane.topics.markers`) that were read from a
# topic.
NoteArrivals = Callable[[str, Sequence[Message]], object]
# A feed adds records to an index: `read` decodes one record for `apply`, and `complete` prepares columns of records for
# `put`. Both `apply` and `put` add to a batch of writes.
Feed = VersionFeed | AggregateInputFeed


# A function that returns, for a topic, the epochs of the leaders that wrote the messages which are applied now: by
# partition, where they are known.
EpochsOf = Callable[[str], Mapping[int, int]]


def no_epochs(topic: str) -> Mapping[int, int]:
    """Return no epochs, for a writer whose messages don't come from a broker, such as that of an offline query."""
    del topic
    return {}


class IndexWriter:
    """A writer of records to the index. One thread at a time may use it, and no other writer may write its assets."""

    def __init__(
        self,
        store: IndexStore,
        *,
        cached_tiles: int = CACHED_TILES,
        erased: ErasedKeys | None = None,
        note_arrivals: NoteArrivals | None = None,
        leave_out: LeaveOut = log_left_out,
        epochs: EpochsOf = no_epochs,
    ) -> None:
        """Write to `store`, keeping up to `cached_tiles` tiles decoded.

        Rows of `erased` keys are left out. `note_arrivals` is called with arrivals of markers before the batch with
        them is written. `leave_out` is called with records that can't be taken before the batch behind them is written.
        `epochs` returns what is kept beside the offsets.
        """
        self._store = store
        self._leave_out = leave_out
        self._epochs = epochs
        self._note_arrivals = note_arrivals
        self._erased = ErasedKeys(dict) if erased is None else erased
        self._tiles = TileCache(store, cached_tiles)
        self._feeds: dict[bytes, tuple[IndexPlan, Feed, ColumnReader | None]] = {}

    def apply(self, plan: IndexPlan, messages: Sequence[Message]) -> Applied:
        """Apply the records of messages of the plan's topic, in one write together with the offsets behind them.

        A record that can't be read is counted, given to `leave_out` and left out. Applying a record again changes
        nothing. Rows of erased keys add nothing; earlier rows of these keys are removed by
        `caraway.dataplane.index.records.removal`.

        Raises `UnavailableError` if the database is damaged or refuses; nothing was written to it then.
        """
        feed, reader = self._feed(plan)
        applied = Applied()
        left_out: list[LeftOut] = []
        batch = self._store.batch()
        erasures = [message for message in messages if is_erasure(message[0])]
        if erasures:
            left_out += self._note(plan, erasures, batch)
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
            records = self._read(plan, singles, left_out)
        epochs = self._epochs(plan.topic)
        for partition, offset in _behind(messages).items():
            self._store.put_offset(batch, plan.asset, partition, offset, epochs.get(partition))
        self._add_left_out(plan, left_out, batch, applied)
        self._write(feed, records, batch, applied)
        return applied

    def apply_single(self, plan: IndexPlan, single: Single) -> Applied:
        """Apply one record of a block, without the offset behind it; otherwise like `apply`."""
        applied = Applied()
        feed, _ = self._feed(plan)
        left_out: list[LeftOut] = []
        delivered = self._read(plan, [single], left_out)
        batch = self._store.batch()
        self._add_left_out(plan, left_out, batch, applied)
        self._write(feed, delivered, batch, applied)
        return applied

    def _add_left_out(
        self, plan: IndexPlan, left_out: Sequence[LeftOut], batch: WriteBatch, applied: Applied | None = None
    ) -> None:
        """Have records kept that are left out, and count them."""
        if not left_out:
            return
        self._leave_out(plan.dataset, plan.topic, left_out)
        self._store.add_left_out(batch, plan.asset, len(left_out))
        if applied is not None:
            applied.refused += len(left_out)

    def _write(self, feed: Feed, records: Puts | Sequence[Delivered], batch: WriteBatch, applied: Applied) -> None:
        """Apply records, and write what they change together with the rest of the batch."""
        try:
            if isinstance(records, Puts):
                applied.newest_ingested_us = records.newest_ingested_us
                feed.put(records, batch, applied)
            else:
                applied.newest_ingested_us = max((d.record.ingested for d in records), default=0)
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

    def _read(self, plan: IndexPlan, singles: Sequence[Single], left_out: list[LeftOut]) -> list[Delivered]:
        """Return the records that can be read, and add the others to `left_out`."""
        feed, _ = self._feed(plan)
        hides = self._hides(plan)
        delivered: list[Delivered] = []
        for key, value, position in singles:
            try:
                # A record without a value is decoded as empty bytes, which fails like any other invalid bytes.
                record = feed.read(key, value or b"", position)
            except InvalidInputError as error:
                left_out.append(LeftOut(position, str(error)))
                continue
            if hides is not None and hides(record.key):
                record = msgspec.structs.replace(record, erased=True)
            delivered.append(record)
        return delivered

    def prepare(self, plan: IndexPlan) -> None:
        """Prepare to apply records of a plan. Raises `InvalidInputError` for a plan that can't be indexed."""
        self._feeds.pop(plan.asset, None)
        self._feed(plan)

    def skip(self, plan: IndexPlan, message: Message, left_out: Sequence[LeftOut] = ()) -> None:
        """Skip a message, of which these records are left out: have them kept, and write the offset behind it.

        Raises `UnavailableError` like `apply`.
        """
        batch = self._store.batch()
        self._add_left_out(plan, left_out, batch)
        epoch = self._epochs(plan.topic).get(message[2])
        self._store.put_offset(batch, plan.asset, message[2], message[3] + 1, epoch)
        self._store.write(batch)

    def take_over(self) -> None:
        """Drop decoded tiles, because another writer may have changed the database."""
        self._tiles.discard()

    def forget(self, asset: bytes) -> None:
        """Remove all data and offsets of an asset."""
        self._feeds.pop(asset, None)
        self._tiles.discard()
        self._store.drop(asset)

    def _note(self, plan: IndexPlan, messages: Sequence[Message], batch: WriteBatch) -> list[LeftOut]:
        """Store erasures of keys, whose entries are to be removed, and return those that can't be read.

        An index that emits rows keeps its entries.
        """
        left_out: list[LeftOut] = []
        for _, value, partition, offset in messages:
            try:
                erasure = decode_erasure(value)
            except InvalidInputError as error:
                left_out.append(
                    LeftOut(position_id(offset, partition), f"it is an erasure that can't be read: {error}")
                )
                continue
            # An index finds entries by their key columns only. If a key was erased by another column, its entries can't
            # be found and removed, so the whole index is built anew instead.
            by_key = {key.name for key in plan.schema.keys} >= set(erasure.columns)
            if by_key and plan.emits is None:
                note_erasure(plan.asset, erasure, batch)
                self._erased.add(plan.topic, [erasure])
        return left_out

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
        records = parts_of(value)
        return [(None, *pair) for pair in zip(records, position_ids(offset, partition, len(records)), strict=True)]
    return [(key, value, position_id(offset, partition))]


def _behind(messages: Sequence[Message]) -> dict[int, int]:
    """Return the offset behind the last message of each partition."""
    offsets: dict[int, int] = {}
    for _, _, partition, offset in messages:
        if offset >= offsets.get(partition, 0):
            offsets[partition] = offset + 1
    return offsets
