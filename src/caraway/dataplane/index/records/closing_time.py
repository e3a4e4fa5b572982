"""The closing time of an aggregation: the time up to which its discrete windows are closed, apart from a lookback.

It is the max event time. If windows close by the clock as well, it is the *clock time* of the index if that is later:
a time such that the index has everything that follows from rows accepted before it. So the clock acts as a row of no
group that comes with each heartbeat. The clock time is an entry of the database, which the follower of the index's
topic writes; so it survives a restart, is part of snapshots, and all readers of the database agree.
"""

from rocksdict import RdictIter

from caraway.dataplane.index.records.max_event_time import read_max_event_time, stored_max_event_time
from caraway.dataplane.index.storage.database import check_end
from caraway.dataplane.index.storage.intervals import latest
from caraway.dataplane.index.storage.keys import SIGN, clock_key, pack_u64, unpack_u64
from caraway.dataplane.index.storage.store import IndexStore
from caraway.graph.plan.model import IndexPlan


def read_closing_time(iterator: RdictIter, plan: IndexPlan) -> int | None:
    """Return the closing time of an index in the iterator's state, None if nothing closes its windows yet."""
    greatest = read_max_event_time(iterator, plan.asset)
    if not plan.by_clock:
        return greatest
    key = clock_key(plan.asset)
    iterator.seek(key)
    check_end(iterator)
    return latest(greatest, _unpacked(iterator.value()) if iterator.valid() and iterator.key() == key else None)


def stored_closing_time(store: IndexStore, asset: bytes) -> int | None:
    """Return the closing time of an asset, None if nothing closes its windows yet."""
    return latest(stored_max_event_time(store, asset), stored_clock_time(store, asset))


def stored_clock_time(store: IndexStore, asset: bytes) -> int | None:
    """Return the clock time of an asset; None if it has none, as that of windows that close by event time only."""
    data = store.get(clock_key(asset))
    return None if data is None else _unpacked(data)


def advance_clock_time(store: IndexStore, asset: bytes, time_us: int) -> None:
    """Advance the clock time of an asset, which has everything that follows from rows accepted before `time_us`.

    A time that isn't later, such as one by a clock that was set back, changes nothing.
    """
    known = stored_clock_time(store, asset)
    if known is None or time_us > known:
        batch = store.batch()
        batch.put(clock_key(asset), pack_u64(time_us + SIGN))
        store.write(batch)


def _unpacked(data: bytes) -> int:
    time_us: int = unpack_u64(data, 0)[0] - SIGN
    return time_us
