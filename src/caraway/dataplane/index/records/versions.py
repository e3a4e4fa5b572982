"""Versions of keyed datasets: writing them, and reading them as of a time."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from rocksdict import RdictIter, WriteBatch

from caraway.dataplane.index.records.delivery import Applied, Delivered, Puts
from caraway.dataplane.index.records.locations import Locations
from caraway.dataplane.index.storage.database import check_end
from caraway.dataplane.index.storage.keys import VERSION, key_prefix, version_key, version_seek
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import PUT, RETRACT, Record, RecordCodec
from caraway.dataplane.topics.keys import check_read
from caraway.errors import InvalidInputError
from caraway.graph.plan.model import IndexPlan


class VersionFeed:
    """The feed that writes a topic's records to an index of versions."""

    def __init__(self, plan: IndexPlan, store: IndexStore) -> None:
        self._asset = plan.asset
        self._codec = RecordCodec(plan.schema)
        self._locations = Locations(plan, store) if plan.revised else None

    def read(self, key: bytes | None, value: bytes, position: bytes) -> Delivered:
        """Decode a record; see `writer.Feed`."""
        record = self._codec.decode_value(value)
        if not key:
            raise InvalidInputError("the record has no key")
        check_read(key)
        return Delivered(key, record, record.id or position, value)

    def complete(self, puts: Puts, rows: Sequence[Sequence[Any]]) -> None:
        """Do nothing: versions are stored as they are. See `AggregateInputFeed.complete`."""

    def put(self, puts: Puts, batch: WriteBatch, applied: Applied) -> None:
        """Add records to a batch; see `writer.Feed`. The index must have no revisions."""
        asset, put = self._asset, batch.put
        for key, time_us, order, data in zip(puts.keys, puts.times, puts.orders, puts.data, strict=True):
            put(version_key(key_prefix(asset, key), time_us, order), data)
        applied.written += len(puts.keys)

    def apply(self, delivered: Sequence[Delivered], batch: WriteBatch, applied: Applied) -> None:
        """Add the changes of records to a batch; see `writer.Feed`."""
        if self._locations is not None:
            movements = self._locations.settle(delivered, self._locations.known(delivered), batch)
            for move in movements:
                if move.old is not None and (move.new is None or move.new.entry != move.old.entry):
                    batch.delete(move.old.entry)
                if move.new is not None:
                    batch.put(move.new.entry, move.new_value)
            applied.written += len(movements)
            applied.unchanged += len(delivered) - len(movements)
            return
        # If records are never revised, all records of an identity have the same time and key. So a record that is
        # delivered again only writes the same entry again.
        asset, put = self._asset, batch.put
        for item in delivered:
            if item.record.op == RETRACT or item.erased:
                applied.unchanged += 1
                continue
            put(version_key(key_prefix(asset, item.key), item.record.time, item.record_id), item.value)
            applied.written += 1


class VersionReader:
    """A reader of the version of a key that holds at a time."""

    def __init__(self, plan: IndexPlan, columns: Sequence[str]) -> None:
        """Prepare to read `columns`. Raises `InvalidInputError` if the dataset lacks a column."""
        self._asset = plan.asset
        self._codec = RecordCodec(plan.schema)
        keys = {column.name: position for position, column in enumerate(plan.schema.keys)}
        row = {column.name: position for position, column in enumerate(plan.schema.columns)}
        self._columns = tuple(_pick(name, plan, keys, row) for name in columns)
        self._needs_key = any(name in keys for name in columns)
        # Most reads want no key columns, so that one call can take all values out of the row. For other reads this
        # function is None, and the values are taken one by one.
        self._values = _values(columns, keys, row)

    def bound(self, iterator: RdictIter, elsewhere: object = None) -> Callable[[bytes, int], tuple[list[object], bool]]:
        """Return a function that reads keys from one state of the database; versions don't need `elsewhere`."""
        del elsewhere
        return partial(self._read, iterator)

    def _read(self, iterator: RdictIter, key: bytes, at_us: int) -> tuple[list[object], bool]:
        """Return the columns' values as of `at_us`, and whether the key has a row then."""
        echo = self._codec.decode_key(key) if self._needs_key else []
        prefix = key_prefix(self._asset, key)
        iterator.seek(version_seek(prefix, at_us))
        check_end(iterator)
        record = None
        if iterator.valid() and iterator.key().startswith(prefix + VERSION):
            record = self._codec.decode_value(iterator.value())
            if record.op != PUT:
                record = None
        if self._values is not None and record is not None and record.row is not None:
            return list(self._values(record.row)), True
        return [pick(echo, record) for pick in self._columns], record is not None


Pick = Callable[[list[object], Record | None], object]


def _values(
    columns: Sequence[str], keys: dict[str, int], row: dict[str, int]
) -> Callable[[list[object]], tuple[object, ...]] | None:
    """Return a function that takes two or more value columns out of a row; None for fewer, or for other columns."""
    if len(columns) < 2 or any(name in keys or name not in row for name in columns):
        return None
    take: Callable[[Any], tuple[object, ...]] = itemgetter(*(row[name] for name in columns))
    return take


def _pick(name: str, plan: IndexPlan, keys: dict[str, int], row: dict[str, int]) -> Pick:
    """Return a function that returns a column's value from the requested key and the record found."""
    if name in keys:
        position = keys[name]
        return lambda key, _: key[position]
    if name == plan.schema.timestamp:
        return lambda _, record: None if record is None else record.time
    if name in row:
        position = row[name]
        return lambda _, record: None if record is None or record.row is None else record.row[position]
    known = ", ".join([*row, plan.schema.timestamp])
    raise InvalidInputError(f"{plan.dataset} has no column {name}; it has {known}")
