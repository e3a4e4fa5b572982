"""The rows of a dataset as of a position on its topic, on the disk of the server that writes a sink.

A record of a topic says which row its key has from some time on, and may come late, twice, or revise an earlier record
(docs/inside/records.md). To know how a record changes the newest row of its key, a sink needs that row.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from caraway.dataplane.sinks.changes import Change, Row
from caraway.dataplane.topics.codec import PUT, RETRACT
from caraway.dataplane.topics.local_state import LocalState

# The version of the tables below. A state of another version is made anew from the topic.
VERSION = 2

_TABLES = """
CREATE TABLE entries (
    key BLOB NOT NULL, id BLOB NOT NULL, rev BLOB NOT NULL, time INTEGER NOT NULL, op INTEGER NOT NULL, "row" BLOB,
    PRIMARY KEY (key, id)
) WITHOUT ROWID;
CREATE INDEX newest ON entries (key, time, id);
"""
_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder().decode


class TableState(LocalState):
    """The newest rows of a dataset."""

    def __init__(self, path: Path, *, revised: bool, keyed: bool) -> None:
        """Open the state in a file, and create it if there is none.

        Args:
            path: The file.
            revised: True if records may be revised or retracted. Then all versions of a row are kept, since an earlier
                one counts again when a later one is retracted. Otherwise only the newest version of each key is.
            keyed: True if the dataset has keys. Without keys and revisions only the identities of rows are kept, by
                which a record that comes twice is recognised.
        """
        super().__init__(path, _TABLES, version=VERSION, what="the state of the sink")
        self._revised = revised
        self._keeps_rows = revised or keyed

    def apply(
        self,
        *,
        key: bytes,
        record_id: bytes,
        rev: bytes,
        op: int,
        time_us: int,
        row: list[Any] | None,
        partition: int,
        offset: int,
    ) -> Change | None:
        """Add a record, and return how it changes the row of its key; None if it doesn't.

        Args:
            key: The key, or the identity if the dataset has no keys.
            record_id: The identity of the record.
            rev: Its revision.
            op: Put, delete or retraction (`caraway.dataplane.topics.codec`).
            time_us: Its event time in microseconds.
            row: Its columns in stored form.
            partition: Its partition.
            offset: Its offset.
        """
        before = self._newest(key)
        encoded = _ENCODE(row) if op == PUT else None
        if self._revised:
            known = self._do("SELECT rev, op FROM entries WHERE key = ? AND id = ?", (key, record_id)).fetchone()
            # If a put and a retraction have the same revision, the put counts, whichever came first.
            if known is not None and (rev, op != RETRACT) <= (known[0], known[1] != RETRACT):
                return None
        elif before is not None and (time_us, record_id) <= (before[1], before[0]) and op != RETRACT:
            return None
        if not self._revised:
            self._do("DELETE FROM entries WHERE key = ?", (key,))
        kept = encoded if self._keeps_rows else None
        self._do("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?)", (key, record_id, rev, time_us, op, kept))
        after = self._newest(key) if self._revised else (record_id, time_us, op, encoded)
        # The bytes are compared, since a row with NaN differs from itself.
        was, now = (None if found is None or found[3] is None else (found[1], found[3]) for found in (before, after))
        if was == now:
            return None
        return Change(key, _row(was), _row(now), time_us, partition, offset)

    def is_newest(self, change: Change) -> bool:
        """Return whether the row that a change has made of its key is still the one of this key."""
        found = self._newest(change.key)
        if not self._keeps_rows:
            return found is not None
        now = None if found is None or found[3] is None else (found[1], found[3])
        # The bytes are compared, since a row with NaN differs from itself.
        return now == (None if change.after is None else (change.after.time_us, _ENCODE(list(change.after.values))))

    def forget(self, hides: Callable[[bytes, list[Any] | None], bool]) -> int:
        """Remove the rows that `hides` is true of, given key and columns, and return how many; they make no changes."""
        keys = [(key,) for key, row in self._do('SELECT key, "row" FROM entries') if hides(key, row and _DECODE(row))]
        for key in keys:
            self._do("DELETE FROM entries WHERE key = ?", key)
        return len(keys)

    def roll_back(self) -> None:
        """Forget the changes since the last commit."""
        self._do("ROLLBACK")
        self._do("BEGIN")

    def clear(self) -> None:
        """Remove everything."""
        self._do("DELETE FROM entries")
        self._do("DELETE FROM positions")
        self.commit({})

    def _newest(self, key: bytes) -> tuple[bytes, int, int, bytes | None] | None:
        """Return identity, time, operation and row of the version of a key that counts; None if there is none."""
        query = 'SELECT id, time, op, "row" FROM entries WHERE key = ? AND op <> 0 ORDER BY time DESC, id DESC LIMIT 1'
        found: tuple[bytes, int, int, bytes | None] | None = self._do(query, (key,)).fetchone()
        return found


def _row(found: tuple[int, bytes] | None) -> Row | None:
    return None if found is None else Row(found[0], tuple(_DECODE(found[1])))
