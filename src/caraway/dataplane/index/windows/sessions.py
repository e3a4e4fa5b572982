"""The sessions of a group: runs of aggregate inputs with at most a gap between one and the next.

The entry of a session has the seconds of its first and of its last aggregate input. Adding an aggregate input changes
only the sessions beside it, and to remove one only the aggregate inputs just before and after it are read. So the time
that a change takes doesn't grow with the number of aggregate inputs of a group.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from rocksdict import RdictIter, WriteBatch

from caraway.dataplane.index.storage.database import check_end
from caraway.dataplane.index.storage.keys import RAW, SESSION, SIGN, from_time, pack_u64, time_of, unpack_u64
from caraway.dataplane.index.storage.store import IndexStore
from caraway.graph.windows import SessionWindow

SECOND_US = 1_000_000
# A session's window ends this many microseconds after the start of the second of its last aggregate input. The end
# isn't part of the window.
END_US = 1


class Session(NamedTuple):
    """A session: the seconds of its first and of its last aggregate input, in microseconds."""

    first_us: int
    last_us: int

    @property
    def end_us(self) -> int:
        """The exclusive end of the session's window."""
        return self.last_us + END_US


class Sessions:
    """The writer of the sessions of one index."""

    def __init__(self, window: SessionWindow, store: IndexStore) -> None:
        self._gap_us = window.gap_us
        self._store = store

    def change(
        self,
        prefix: bytes,
        added: Sequence[int],
        removed: Sequence[int],
        touched: Collection[bytes],
        batch: WriteBatch,
    ) -> list[tuple[int, int]]:
        """Update the sessions of one group after aggregate inputs of these times were added or removed.

        `touched` are their raw entries: the database has them as they were before the batch, so they aren't read there.
        Intervals of time are returned: each is that of a session that was removed, is new, or has changed.
        """
        iterator = self._store.iterator()
        seconds = {_second(time_us) for time_us in (*added, *removed)}
        before = sorted({s for second in seconds for s in self._beside(iterator, prefix, second)})
        merged = self._merged(before, [_second(time_us) for time_us in added])
        raw = _Raw(iterator, prefix + RAW, sorted(added), touched)
        for second in {_second(time_us) for time_us in removed}:
            self._part(merged, second, raw)
        for session in set(before) - set(merged):
            batch.delete(session_key(prefix, session.first_us))
        for session in set(merged) - set(before):
            batch.put(session_key(prefix, session.first_us), pack_u64(session.last_us + SIGN))
        unchanged = set(before) & set(merged)
        return [
            (session.first_us, session.end_us)
            for session in {*before, *merged}
            if session not in unchanged or any(session.first_us <= s <= session.last_us for s in seconds)
        ]

    def _beside(self, iterator: RdictIter, prefix: bytes, second: int) -> Iterator[Session]:
        """Yield the sessions that contain a second or are adjacent to it."""
        if (before := session_by(iterator, prefix, second)) is not None:
            yield before
        yield from sessions_from(iterator, prefix, second, second + self._gap_us)

    def _merged(self, sessions: Sequence[Session], seconds: Sequence[int]) -> list[Session]:
        """Return the sessions after aggregate inputs were added; `sessions` are all within a gap of these."""
        merged: list[Session] = []
        for part in sorted([*sessions, *(Session(second, second) for second in seconds)]):
            if merged and part.first_us - merged[-1].last_us <= self._gap_us:
                merged[-1] = Session(merged[-1].first_us, max(merged[-1].last_us, part.last_us))
            else:
                merged.append(part)
        return merged

    def _part(self, sessions: list[Session], second: int, raw: "_Raw") -> None:
        """Remove a second that has no aggregate input left: its session is shortened, divided or removed."""
        position = bisect_right(sessions, second, key=_first) - 1
        if position < 0 or sessions[position].last_us < second:
            # The second isn't in a session any more. When another second was removed, this one was cut off with it,
            # because it had no aggregate input left either.
            return
        following = raw.first_from(second)
        if following is not None and following < second + SECOND_US:
            return
        first_us, last_us = sessions[position]
        left, right = raw.last_before(second), following
        parts = []
        if left is not None and left >= first_us:
            parts.append(Session(first_us, _second(left)))
        if right is not None and _second(right) <= last_us:
            parts.append(Session(_second(right), last_us))
        if len(parts) > 1 and parts[1].first_us - parts[0].last_us <= self._gap_us:
            return
        sessions[position : position + 1] = parts


class _Raw:
    """The times of a group's aggregate inputs after a batch that isn't written yet."""

    def __init__(self, iterator: RdictIter, entries: bytes, added: Sequence[int], touched: Collection[bytes]) -> None:
        self._iterator = iterator
        self._entries = entries
        self._added = added
        self._touched = touched

    def first_from(self, time_us: int) -> int | None:
        """Return the first time at or after a time; None if there is none."""
        iterator, position = self._iterator, bisect_left(self._added, time_us)
        found = self._added[position] if position < len(self._added) else None
        iterator.seek(from_time(self._entries, time_us))
        while iterator.valid() and (key := iterator.key()).startswith(self._entries):
            if key not in self._touched:
                kept = time_of(key, len(self._entries))
                return kept if found is None else min(found, kept)
            iterator.next()
        check_end(iterator)
        return found

    def last_before(self, time_us: int) -> int | None:
        """Return the last time before a time; None if there is none."""
        iterator, position = self._iterator, bisect_left(self._added, time_us)
        found = self._added[position - 1] if position else None
        iterator.seek_for_prev(from_time(self._entries, time_us))
        while iterator.valid() and (key := iterator.key()).startswith(self._entries):
            if key not in self._touched:
                kept = time_of(key, len(self._entries))
                return kept if found is None else max(found, kept)
            iterator.prev()
        check_end(iterator)
        return found


def session_key(prefix: bytes, first_us: int) -> bytes:
    """Return the key of a group's session that begins with a second."""
    return prefix + SESSION + pack_u64(first_us + SIGN)


def session_by(iterator: RdictIter, prefix: bytes, time_us: int) -> Session | None:
    """Return the last session that begins before a time."""
    entries = prefix + SESSION
    iterator.seek_for_prev(from_time(entries, time_us))
    if iterator.valid() and iterator.key() == from_time(entries, time_us):
        iterator.prev()
    check_end(iterator)
    return _session(iterator, entries) if iterator.valid() and iterator.key().startswith(entries) else None


def sessions_from(iterator: RdictIter, prefix: bytes, first_us: int, until_us: int) -> Iterator[Session]:
    """Yield the sessions that begin between two times, ends included. Nothing else may move the iterator meanwhile."""
    entries = prefix + SESSION
    iterator.seek(from_time(entries, first_us))
    while iterator.valid() and iterator.key().startswith(entries):
        session = _session(iterator, entries)
        if session.first_us > until_us:
            break
        yield session
        iterator.next()
    check_end(iterator)


def _session(iterator: RdictIter, entries: bytes) -> Session:
    return Session(time_of(iterator.key(), len(entries)), unpack_u64(iterator.value(), 0)[0] - SIGN)


def _first(session: Session) -> int:
    return session.first_us


def _second(time_us: int) -> int:
    return time_us // SECOND_US * SECOND_US
