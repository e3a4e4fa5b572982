"""The feed that writes a topic's aggregate inputs to the index."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rocksdict import WriteBatch

from caraway.dataplane.index.aggregates.layout import AggregateInput, Layout
from caraway.dataplane.index.aggregates.partials import HAS_ENDED
from caraway.dataplane.index.records.delivery import Applied, Delivered, Puts
from caraway.dataplane.index.records.locations import LocatedEntry, Locations, Movement, is_end
from caraway.dataplane.index.records.max_event_time import MaxEventTime
from caraway.dataplane.index.storage.intervals import Interval, has_max_event_time
from caraway.dataplane.index.storage.keys import ENDED, RAW, ROOT, SIGN, TIME_BYTES, key_prefix, pack_u64
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.index.windows.change_points import ChangePoints, Lived
from caraway.dataplane.index.windows.pyramid import Pyramid, TileCache
from caraway.dataplane.index.windows.sessions import Sessions
from caraway.dataplane.topics.codec import DELETE, PUT, RETRACT, RecordCodec
from caraway.dataplane.topics.keys import check_read
from caraway.errors import InvalidInputError
from caraway.graph.plan.model import IndexPlan
from caraway.graph.windows import SessionWindow


@dataclass(slots=True)
class _KeyChange:
    """The changes of a batch to one key: raw entries written or deleted, aggregate inputs added and removed."""

    touched: set[bytes] = field(default_factory=set)
    added: list[AggregateInput] = field(default_factory=list)
    removed: list[AggregateInput] = field(default_factory=list)
    ended: bool = False


class _Written(Container[bytes]):
    """The raw entries of a key that a batch writes, made of what follows the key in each."""

    __slots__ = ("_items", "_raw")

    def __init__(self, raw: bytes, items: Container[bytes]) -> None:
        self._raw = raw
        self._items = items

    def __contains__(self, entry: object) -> bool:
        return isinstance(entry, bytes) and entry.startswith(self._raw) and entry[len(self._raw) :] in self._items


class AggregateInputFeed:
    """The way of a topic's records into an index of aggregates."""

    def __init__(self, plan: IndexPlan, store: IndexStore, tiles: TileCache) -> None:
        self._asset = plan.asset
        self._store = store
        self._tiles = tiles
        self._codec = RecordCodec(plan.schema)
        self._keys = len(plan.schema.keys)
        self._layout = Layout(plan, store.geometry.values)
        self._pyramid = Pyramid(store, tiles, self._layout, self._codec)
        self._locations = Locations(plan, store) if plan.revised else None
        self._max_event_time = MaxEventTime(plan.asset, store) if has_max_event_time(plan) else None
        self._sessions = Sessions(plan.window, store) if isinstance(plan.window, SessionWindow) else None
        self._change_points = ChangePoints(plan, store) if plan.emits is not None else None
        names = [column.name for column in plan.schema.columns]
        self._rank_at = names.index(plan.schema.timestamp) if plan.along else None

    def read(self, key: bytes | None, value: bytes, position: bytes) -> Delivered:
        """Decode a record; see `writer.Feed`. A record of a block has no key but that of its row."""
        record = self._codec.decode_value(value)
        record_id = record.id or position
        if record.op == DELETE and not (self._locations is not None and is_end(record_id)):
            raise InvalidInputError("a delete among aggregate inputs must be the end of a changelog's put")
        if key is None:
            key = b"" if record.row is None else self._codec.encode_key(record.row[: self._keys]) or b""
        check_read(key)
        if record.row is None:
            return Delivered(key, record, record_id, value)
        return Delivered(key, record, record_id, value, self._layout.values(record), self._rank(record.row))

    def apply(self, delivered: Sequence[Delivered], batch: WriteBatch, applied: Applied) -> None:
        """Add the changes of records to a batch; see `writer.Feed`."""
        locations = self._locations
        if locations is None:
            written = self._add(delivered, batch)
        else:
            known, moved = locations.known(delivered), delivered
            written = 0
            # The max event time of an index with revisions is computed from movements, which only `settle` makes. If
            # the index needs no max event time, new inputs are added in a faster way.
            if self._max_event_time is None:
                added, moved = locations.divide(delivered, known)
                locations.locate(added, batch)
                written = self._put(_puts_of(added), batch, known=False)
            newest_us = max((item.record.ingested for item in delivered), default=0)
            written += self._move(locations.settle(moved, known, batch), batch, newest_us)
        applied.written += written
        applied.unchanged += len(delivered) - written

    def complete(self, puts: Puts, rows: Sequence[Sequence[Any]]) -> None:
        """Add to records, which have identities as their orders, what `put` needs of their rows; no key is too long.

        Raises `InvalidInputError` if a value isn't of its column's type.
        """
        if self._rank_at is not None:
            puts.orders = [self._rank(row) + order for row, order in zip(rows, puts.orders, strict=True)]
        puts.values = self._layout.values_of_rows(rows, puts.times)

    def put(self, puts: Puts, batch: WriteBatch, applied: Applied) -> None:
        """Add records to a batch; see `writer.Feed`. The index must have no revisions."""
        written = self._put(puts, batch)
        if self._max_event_time is not None and puts.times:
            self._max_event_time.advance(max(puts.times), batch)
        applied.written += written
        applied.unchanged += len(puts.keys) - written

    def _add(self, delivered: Sequence[Delivered], batch: WriteBatch) -> int:
        """Add aggregate inputs that are never revised."""
        live = [item for item in delivered if item.record.op != RETRACT]
        if self._max_event_time is not None and live:
            self._max_event_time.advance(max(item.record.time for item in live), batch)
        return self._put(_puts_of([item for item in live if not item.erased]), batch)

    def _put(self, puts: Puts, batch: WriteBatch, *, known: bool = True) -> int:
        """Add aggregate inputs. Those that the index has already are left out; it has none of them if not `known`."""
        times, orders, data, values = puts.times, puts.orders, puts.data, puts.values
        # By key, the position of each input in `puts`. Two inputs of a key are the same if their raw entries have the
        # same bytes after the key, so an input that occurs twice in a batch is added once.
        suffixes = [pack_u64(time_us + SIGN) + order for time_us, order in zip(times, orders, strict=True)]
        keys: dict[bytes, dict[bytes, int]] = {key: {} for key in puts.keys}
        for position, (key, suffix) in enumerate(zip(puts.keys, suffixes, strict=True)):
            keys[key].setdefault(suffix, position)
        prefixes = [key_prefix(self._asset, key) for key in keys]
        root_keys = [prefix + ROOT for prefix in prefixes]
        roots = self._tiles.load_many(self._layout, root_keys)
        if known:
            self._drop_known(prefixes, [root.high for root in roots], list(keys.values()), times)
        written = 0
        changed: dict[bytes, _KeyChange] = {}
        put, change, save = batch.put, self._pyramid.change, self._tiles.save
        tells = self._sessions is not None or self._change_points is not None
        for prefix, root_key, root, items in zip(prefixes, root_keys, roots, keys.values(), strict=True):
            if not items:
                continue
            raw = prefix + RAW
            for suffix, position in items.items():
                put(raw + suffix, data[position])
            added = [(times[position], values[position], orders[position]) for position in items.values()]
            change(prefix, root, added, (), _Written(raw, items))
            save(root_key, root)
            written += len(added)
            if tells:
                changed[prefix] = _KeyChange(touched={raw + suffix for suffix in items}, added=added)
        if self._sessions is not None:
            self._change_sessions(self._sessions, changed, batch, puts.newest_ingested_us)
        elif self._change_points is not None:
            came = [(p, None, (time_us, None), False) for p, c in changed.items() for time_us, _, _ in c.added]
            self._change_points.move(came, batch, puts.newest_ingested_us)
        return written

    def _drop_known(
        self, prefixes: list[bytes], highs: list[int], keys: list[dict[bytes, int]], times: Sequence[int]
    ) -> None:
        """Leave out aggregate inputs that the database has. Those later than all of a key's need no lookup."""
        doubtful = [
            (items, suffix, prefix + RAW + suffix)
            for prefix, high, items in zip(prefixes, highs, keys, strict=True)
            for suffix, position in items.items()
            if times[position] <= high
        ]
        if doubtful:
            found = self._store.get_many([entry for _, _, entry in doubtful])
            for (items, suffix, _), data in zip(doubtful, found, strict=True):
                if data is not None:
                    del items[suffix]

    def _move(self, movements: Sequence[Movement], batch: WriteBatch, ingested_us: int) -> int:
        """Add, remove and move aggregate inputs that may be revised; they were ingested by `ingested_us`."""
        changes: dict[bytes, _KeyChange] = {}
        for move in movements:
            if move.old is not None:
                if move.new is None or move.new.entry != move.old.entry:
                    batch.delete(move.old.entry)
                if move.old.kind == RAW:
                    change = changes.setdefault(move.old.prefix, _KeyChange())
                    change.touched.add(move.old.entry)
                    change.removed.append(self._aggregate_input(move.old, move.old_value))
            if move.new is not None:
                batch.put(move.new.entry, move.new_value)
                if move.new.kind == RAW:
                    change = changes.setdefault(move.new.prefix, _KeyChange())
                    change.touched.add(move.new.entry)
                    change.added.append(self._aggregate_input(move.new, move.new_value))
                elif move.new.kind == ENDED:
                    changes.setdefault(move.new.prefix, _KeyChange()).ended = True
        root_keys = [prefix + ROOT for prefix in changes]
        roots = self._tiles.load_many(self._layout, root_keys)
        for (prefix, change), root_key, root in zip(changes.items(), root_keys, roots, strict=True):
            if change.ended:
                root.flags |= HAS_ENDED
            if change.added or change.removed:
                self._pyramid.change(prefix, root, change.added, change.removed, change.touched)
            self._tiles.save(root_key, root)
        if self._max_event_time is not None:
            self._max_event_time.move(movements, batch)
        if self._sessions is not None:
            self._change_sessions(self._sessions, changes, batch, ingested_us)
        elif self._change_points is not None:
            turning = [change for move in movements for change in _turning(move)]
            self._change_points.move(turning, batch, ingested_us)
        return len(movements)

    def _change_sessions(
        self, sessions: Sessions, changes: Mapping[bytes, _KeyChange], batch: WriteBatch, ingested_us: int
    ) -> None:
        """Update the sessions of groups after changes to their aggregate inputs."""
        dirty: dict[bytes, list[Interval]] = {}
        for prefix, change in changes.items():
            added, removed = [[time_us for time_us, _, _ in side] for side in (change.added, change.removed)]
            dirty[prefix] = sessions.change(prefix, added, removed, change.touched, batch)
        if self._change_points is not None:
            self._change_points.mark_dirty(dirty, batch, ingested_us)

    def _aggregate_input(self, standing: LocatedEntry, value: bytes | None) -> AggregateInput:
        """Return an aggregate input that was accepted before."""
        if value is None:
            raise RuntimeError("the index has a location for an aggregate input but not its entry")
        record = self._codec.decode_value(value)
        if record.row is None or record.op != PUT:
            raise RuntimeError("the index holds an aggregate input that is no put")
        return record.time, self._layout.values(record), standing.entry[len(standing.prefix) + len(RAW) + TIME_BYTES :]

    def _rank(self, row: Sequence[object]) -> bytes:
        """Return the rank of an aggregate input before its identity: its timestamp, if another column is its time."""
        if self._rank_at is None:
            return b""
        time_us = row[self._rank_at]
        if not isinstance(time_us, int):
            raise InvalidInputError(f"the time stamp is {time_us!r}, which is no instant")
        return pack_u64(time_us + SIGN)


def _puts_of(added: Sequence[Delivered]) -> Puts:
    return Puts(
        keys=[item.key for item in added],
        times=[item.record.time for item in added],
        orders=[item.rank + item.record_id for item in added],
        data=[item.value for item in added],
        values=[item.values for item in added],
        newest_ingested_us=max((item.record.ingested for item in added), default=0),
    )


def _turning(move: Movement) -> Iterator[tuple[bytes, Lived | None, Lived | None, bool]]:
    """Yield how an aggregate input counted in its group before a movement, and how it counts afterwards."""
    old, new = move.old, move.new
    if old is not None and new is not None and old.prefix == new.prefix:
        yield old.prefix, old.life, new.life, move.old_value == move.new_value
        return
    if old is not None:
        yield old.prefix, old.life, None, False
    if new is not None:
        yield new.prefix, None, new.life, False
