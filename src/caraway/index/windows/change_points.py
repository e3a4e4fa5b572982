"""The change points of a group: the times at which its row changes. They begin the versions that an index emits.

The row of a group changes where an aggregate input comes into a window, and where it leaves it. For each change point
the number of aggregate inputs is kept, under the group, and beside it an entry in the order of time over all groups:
when the max event time moves on, that tells which groups have something new. A change also leaves the group *dirty*
over an interval of time; the emission looks at these intervals and takes them away.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from rocksdict import WriteBatch

from caraway.graph.windows import HoppingWindow
from caraway.index.storage.intervals import Interval, life, next_end, own_windows
from caraway.index.storage.keys import (
    ASSET_BYTES,
    CHANGE_POINT,
    CHANGE_POINTS,
    DIRTY,
    LAST_TIME_US,
    SIGN,
    pack_u64,
    timed_key,
)
from caraway.index.storage.store import IndexStore
from caraway.plan.model import IndexPlan

# When an aggregate input is, and when it is taken back (None: not).
Lived = tuple[int, int | None]

# Intervals kept apart for one group; beyond, they become one.
MAX_INTERVALS = 64

# What a key's length takes, before the key.
LENGTH_BYTES = 2
# The aggregate inputs of a change point are counted; the number takes these bytes.
COUNT_BYTES = 4

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(list[Interval]).decode


class ChangePoints:
    """Keeps the change points of one index, and which groups are dirty."""

    def __init__(self, plan: IndexPlan, store: IndexStore) -> None:
        self._asset = plan.asset
        self._store = store
        self._windows = own_windows(plan)
        self._bucket = plan.window if isinstance(plan.window, HoppingWindow) else None
        self._shows_empty = bool(plan.aggregates)

    def move(self, changes: Sequence[tuple[bytes, Lived | None, Lived | None, bool]], batch: WriteBatch) -> None:
        """Note what aggregate inputs do to the change points of their groups.

        Args:
            changes: For each aggregate input what the entries of its group begin with, how it counted, how it counts
                now, and whether it has the same row as before, so that only its end may be another.
            batch: What changed entries are added to.
        """
        counts: dict[bytes, Counter[int]] = {}
        dirty: dict[bytes, list[Interval]] = {}
        for prefix, old, new, same in changes:
            counter = counts.setdefault(prefix, Counter())
            before = [] if old is None else self._lives(old)
            after = [] if new is None else self._lives(new)
            for change_points, number in ((before, -1), (after, 1)):
                for change_point in change_points:
                    for time_us in self._change_points(change_point):
                        counter[time_us] += number
            dirty.setdefault(prefix, []).extend(_differing(before, after, same=same))
        self._count(counts, batch)
        self.mark_dirty(dirty, batch)

    def mark_dirty(self, intervals: Mapping[bytes, Sequence[Interval]], batch: WriteBatch) -> None:
        """Note that groups, by what their entries begin with, are to be looked at over intervals of time."""
        wanted = {
            self._asset + DIRTY + prefix[ASSET_BYTES:]: list(found) for prefix, found in intervals.items() if found
        }
        known = self._store.get_many(list(wanted)) if wanted else []
        for (key, found), data in zip(wanted.items(), known, strict=True):
            batch.put(key, pack_intervals([*found, *(() if data is None else unpack_intervals(data))]))

    def _lives(self, lived: Lived) -> list[tuple[int, int | None]]:
        """Return when an aggregate input comes into a window and when it leaves it, for each of its windows."""
        time_us, end_us = lived
        if self._bucket is not None:
            length_us, stride_us = self._bucket.length_us or 0, self._bucket.stride_us
            first = next_end(self._bucket, time_us)
            # The last bucket that holds it, or the empty one after that.
            last = first + (time_us + length_us - first) // stride_us * stride_us
            if last < first:
                return []
            return [(first, last + (stride_us if self._shows_empty else 0))]
        lives = [life(window, time_us, end_us) for window in self._windows]
        return [(enter, leave) for enter, leave in lives if leave is None or enter < leave]

    def _change_points(self, lived: tuple[int, int | None]) -> Iterator[int]:
        enter, leave = lived
        if self._bucket is not None and leave is not None:
            yield from range(enter, leave + 1, self._bucket.stride_us)
            return
        yield enter
        if leave is not None:
            yield leave

    def _count(self, counts: Mapping[bytes, Mapping[int, int]], batch: WriteBatch) -> None:
        """Add to the numbers of aggregate inputs at change points."""
        changed = [(prefix, time_us, n) for prefix, counter in counts.items() for time_us, n in counter.items() if n]
        keys = [timed_key(prefix + CHANGE_POINT, time_us, b"") for prefix, time_us, _ in changed]
        known = self._store.get_many(keys) if keys else []
        for key, (prefix, time_us, number), data in zip(keys, changed, known, strict=True):
            before = 0 if data is None else int.from_bytes(data)
            count = before + number
            if count < 0:
                raise RuntimeError("the index counts fewer aggregate inputs than it takes back")
            if count:
                batch.put(key, count.to_bytes(COUNT_BYTES))
            else:
                batch.delete(key)
            if count and not before:
                batch.put(change_point_key(self._asset, time_us, prefix), b"")
            elif before and not count:
                batch.delete(change_point_key(self._asset, time_us, prefix))


def change_point_key(asset: bytes, time_us: int, prefix: bytes) -> bytes:
    """Return the key under which the change point of a group is noted in the order of time."""
    return asset + CHANGE_POINTS + pack_u64(time_us + SIGN) + prefix[ASSET_BYTES:]


def pack_intervals(intervals: Sequence[Interval]) -> bytes:
    """Encode intervals of time, those that meet as one."""
    merged: list[Interval] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    if len(merged) > MAX_INTERVALS:
        merged = [(merged[0][0], merged[-1][1])]
    return _ENCODE(merged)


def unpack_intervals(data: bytes) -> list[Interval]:
    """Decode intervals of time, ascending."""
    return _DECODE(data)


def _differing(
    before: Sequence[tuple[int, int | None]], after: Sequence[tuple[int, int | None]], *, same: bool
) -> Iterator[Interval]:
    """Yield when a group's row isn't what it was, given the lives of an aggregate input before and after.

    If the aggregate input has the row that it had, it makes no difference where it counted and still does.
    """
    if same and [enter for enter, _ in before] == [enter for enter, _ in after]:
        for (_, old), (_, new) in zip(before, after, strict=True):
            if old != new:
                ends = (LAST_TIME_US if old is None else old, LAST_TIME_US if new is None else new)
                yield min(ends), max(ends)
        return
    for enter, leave in (*before, *after):
        yield enter, LAST_TIME_US if leave is None else leave
