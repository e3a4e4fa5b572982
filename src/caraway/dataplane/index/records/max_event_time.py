"""The max event time of an aggregation: the greatest event time of all its keys, which closes discrete windows.

It is stored in the same write as the offsets. If records may be revised, the times of all aggregate inputs are stored
too, in order. When the aggregate input with the greatest time is removed, the next greatest time is found there.
"""

from collections.abc import Sequence

from rocksdict import RdictIter, WriteBatch

from caraway.dataplane.index.records.locations import Movement
from caraway.dataplane.index.storage.database import check_end
from caraway.dataplane.index.storage.intervals import latest
from caraway.dataplane.index.storage.keys import (
    SIGN,
    TIMES,
    max_event_time_key,
    pack_u64,
    time_of,
    times_key,
    unpack_u64,
)
from caraway.dataplane.index.storage.store import IndexStore


class MaxEventTime:
    """The writer of the max event time of one index."""

    def __init__(self, asset: bytes, store: IndexStore) -> None:
        self._asset = asset
        self._store = store

    def advance(self, newest: int, batch: WriteBatch) -> None:
        """Advance the max event time to that of an aggregate input that is never revised, unless it is later."""
        known = self._known()
        if known is None or newest > known:
            batch.put(max_event_time_key(self._asset), pack_u64(newest + SIGN))

    def move(self, movements: Sequence[Movement], batch: WriteBatch) -> None:
        """Update the times that aggregate inputs reach, and the max event time."""
        gone: dict[bytes, int] = {}
        come: dict[bytes, int] = {}
        for move in movements:
            if move.reached_us is not None:
                gone[times_key(self._asset, move.reached_us, move.record_id)] = move.reached_us
            if move.reaches_us is not None:
                come[times_key(self._asset, move.reaches_us, move.record_id)] = move.reaches_us
        for key in gone.keys() - come.keys():
            batch.delete(key)
        for key in come.keys() - gone.keys():
            batch.put(key, b"")
        known = self._known()
        newest = max(come.values(), default=None)
        if known is not None and (newest is None or newest < known):
            newest = latest(newest, self._still(known, gone))
        if newest is None:
            batch.delete(max_event_time_key(self._asset))
        elif newest != known:
            batch.put(max_event_time_key(self._asset), pack_u64(newest + SIGN))

    def _still(self, known: int, gone: dict[bytes, int]) -> int | None:
        """Return the greatest time of the aggregate inputs that aren't `gone`, given the max event time before."""
        if known not in gone.values():
            return known
        entries = self._asset + TIMES
        iterator = self._store.iterator()
        iterator.seek_for_prev(entries + b"\xff" * 9)
        while iterator.valid() and iterator.key().startswith(entries):
            if iterator.key() not in gone:
                return time_of(iterator.key(), len(entries))
            iterator.prev()
        check_end(iterator)
        return None

    def _known(self) -> int | None:
        return stored_max_event_time(self._store, self._asset)


def stored_max_event_time(store: IndexStore, asset: bytes) -> int | None:
    """Return the max event time of an asset, None if it has no aggregate inputs."""
    data = store.get(max_event_time_key(asset))
    return None if data is None else _unpacked(data)


def read_max_event_time(iterator: RdictIter, asset: bytes) -> int | None:
    """Return the max event time of an asset in the iterator's state, None if it has no aggregate inputs."""
    key = max_event_time_key(asset)
    iterator.seek(key)
    check_end(iterator)
    return _unpacked(iterator.value()) if iterator.valid() and iterator.key() == key else None


def _unpacked(data: bytes) -> int:
    time_us: int = unpack_u64(data, 0)[0] - SIGN
    return time_us
