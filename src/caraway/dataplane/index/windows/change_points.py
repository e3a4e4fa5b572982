"""The change points of a group: the times at which its row changes. The versions that an index emits begin at them.

The row of a group changes when an aggregate input enters a window and when it leaves. For each change point the number
of such aggregate inputs is stored under the group, together with an entry in order of time over all groups: when the
max event time advances, these entries lead to the groups with new rows. A change also makes the group *dirty* over an
interval of time; the emission compares rows in these intervals, then removes them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from rocksdict import WriteBatch

from caraway.dataplane.index.storage.intervals import Interval, life, next_end, own_windows
from caraway.dataplane.index.storage.keys import (
    ASSET_BYTES,
    CHANGE_POINT,
    CHANGE_POINTS,
    DIRTY,
    FIRST_TIME_US,
    LAST_TIME_US,
    SIGN,
    newest_input_key,
    pack_u64,
    timed_key,
    unpack_u64,
)
from caraway.dataplane.index.storage.store import IndexStore
from caraway.graph.plan.model import IndexPlan
from caraway.graph.windows import HoppingWindow

# The life of an aggregate input: its event time, and the event time of its end (None if it has none).
Lived = tuple[int, int | None]

# The most dirty intervals that are stored for one group. More are replaced by one interval around them all, so that the
# entry stays small; the emission then compares more rows than necessary.
MAX_INTERVALS = 64

# The bytes of the number that is stored for each change point: how many aggregate inputs enter or leave a window then.
COUNT_BYTES = 4

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(list[Interval]).decode


class ChangePoints:
    """The writer of the change points and dirty groups of one index."""

    def __init__(self, plan: IndexPlan, store: IndexStore) -> None:
        self._asset = plan.asset
        self._store = store
        self._windows = own_windows(plan)
        self._bucket = plan.window if isinstance(plan.window, HoppingWindow) else None
        self._shows_empty = bool(plan.aggregates)

    def move(
        self, changes: Sequence[tuple[bytes, Lived | None, Lived | None, bool]], batch: WriteBatch, ingested_us: int
    ) -> None:
        """Update the change points of groups after changes to their aggregate inputs, ingested by `ingested_us`.

        A change has the prefix of the group's entries, the life of an aggregate input before and now, and whether its
        row is the same as before, so that at most its end differs.
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
        self.mark_dirty(dirty, batch, ingested_us)

    def mark_dirty(
        self, intervals: Mapping[bytes, Sequence[Interval]], batch: WriteBatch, ingested_us: int = FIRST_TIME_US
    ) -> None:
        """Add intervals of time over which groups, given by the prefixes of their entries, are dirty.

        `ingested_us` is the greatest ingestion time of the causes. It is stored with them, since the process may end
        before the rows are emitted, and a row must not be known before its causes.
        """
        newest_us = max(ingested_us, read_newest_input(self._store, self._asset))
        batch.put(newest_input_key(self._asset), pack_u64(newest_us + SIGN))
        wanted = {
            self._asset + DIRTY + prefix[ASSET_BYTES:]: list(found) for prefix, found in intervals.items() if found
        }
        known = self._store.get_many(list(wanted)) if wanted else []
        for (key, found), data in zip(wanted.items(), known, strict=True):
            batch.put(key, pack_intervals([*found, *(() if data is None else unpack_intervals(data))]))

    def _lives(self, lived: Lived) -> list[tuple[int, int | None]]:
        """Return when an aggregate input enters and when it leaves, for each of its windows."""
        time_us, end_us = lived
        if self._bucket is not None:
            length_us, stride_us = self._bucket.length_us or 0, self._bucket.stride_us
            first = next_end(self._bucket, time_us)
            # `last` is the end of the last bucket that contains the aggregate input. The empty bucket after it may have
            # a row too, which shows that no more aggregate inputs came.
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
        """Add to the stored numbers of aggregate inputs at change points."""
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


def read_newest_input(store: IndexStore, asset: bytes) -> int:
    """Return the greatest ingestion time of the records by which an index that emits rows has changed."""
    data = store.get(newest_input_key(asset))
    return FIRST_TIME_US if data is None else int(unpack_u64(data)[0]) - SIGN


def change_point_key(asset: bytes, time_us: int, prefix: bytes) -> bytes:
    """Return the key of a group's change point in the order of time over all groups."""
    return asset + CHANGE_POINTS + pack_u64(time_us + SIGN) + prefix[ASSET_BYTES:]


def pack_intervals(intervals: Sequence[Interval]) -> bytes:
    """Return encoded intervals of time, after joining those that overlap or touch."""
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
    """Return decoded intervals of time, ascending."""
    return _DECODE(data)


def _differing(
    before: Sequence[tuple[int, int | None]], after: Sequence[tuple[int, int | None]], *, same: bool
) -> Iterator[Interval]:
    """Yield the intervals in which a group's row may differ, from the lives of an aggregate input before and after.

    If the row of the aggregate input is the same as before, nothing differs at times at which it counted before and
    counts now.
    """
    if same and [enter for enter, _ in before] == [enter for enter, _ in after]:
        for (_, old), (_, new) in zip(before, after, strict=True):
            if old != new:
                ends = (LAST_TIME_US if old is None else old, LAST_TIME_US if new is None else new)
                yield min(ends), max(ends)
        return
    for enter, leave in (*before, *after):
        yield enter, LAST_TIME_US if leave is None else leave
