"""The records of a topic that were seen already, on the disk of the server that checks them.

A job that starts again sends records again that it has sent since its last checkpoint, and an index may send a row
again that has become what it was. So each put is compared with the last one of its identity.

There is one entry for each identity of the topic, however often its record comes or is revised. None may be forgotten
while the topic is checked: no topic of a dataset forgets its records before the archive has them, and a job whose
checkpoint is lost begins with the first one and sends all of its results again. So the file grows with the topic, and
ends with the check (`caraway.quality.follower`).
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from caraway.topics.local_state import LocalState

# The version of the tables below. A state of another version is made anew from the topic.
VERSION = 1
# The size of a hash of a row. Two rows of one identity have the same one by chance in one of 2^64 cases.
DIGEST_BYTES = 8

_TABLES = """
CREATE TABLE entries (
    partition INTEGER NOT NULL, id BLOB NOT NULL, rev BLOB NOT NULL, digest BLOB,
    PRIMARY KEY (partition, id)
) WITHOUT ROWID;
"""

# The identities that one statement looks up. SQLite allows at least 32,766 values in a statement.
LOOKED_UP = 500

# Partition, identity, revision, and the hash of the row; None for a record without a valid row.
Entry = tuple[int, bytes, bytes, bytes | None]
# Partition and identity.
_Key = tuple[int, bytes]


def digest_of(time: bytes, row: bytes) -> bytes:
    """Return the hash of a row and its event time."""
    found = hashlib.blake2b(time, digest_size=DIGEST_BYTES)
    found.update(row)
    return found.digest()


class SeenRecords(LocalState):
    """The newest record of each identity, by partition."""

    def __init__(self, path: Path) -> None:
        """Open the state in a file, and create it if there is none."""
        super().__init__(path, _TABLES, version=VERSION, what="the records that were seen")

    def add(self, entries: Sequence[Entry]) -> list[bool]:
        """Add records in their order, and return which of them put a row that wasn't there."""
        known = self._known(entries)
        changed: dict[_Key, tuple[bytes, bytes | None]] = {}
        new = []
        for partition, record_id, rev, digest in entries:
            key = partition, record_id
            found = known.get(key)
            # If a put and a retraction have one revision, the put counts, whichever came first.
            if found is not None and (rev, digest is not None) <= (found[0], found[1] is not None):
                new.append(False)
                continue
            known[key] = changed[key] = rev, digest
            new.append(digest is not None and (found is None or found[1] != digest))
        self._do_many(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", [(*key, *entry) for key, entry in changed.items()]
        )
        return new

    def _known(self, entries: Sequence[Entry]) -> dict[_Key, tuple[bytes, bytes | None]]:
        """Return what is known of the identities of records."""
        by_partition: dict[int, list[bytes]] = {}
        for partition, record_id, _, _ in entries:
            by_partition.setdefault(partition, []).append(record_id)
        known: dict[_Key, tuple[bytes, bytes | None]] = {}
        for partition, ids in by_partition.items():
            for first in range(0, len(ids), LOOKED_UP):
                some = ids[first : first + LOOKED_UP]
                marks = ", ".join("?" * len(some))
                query = f"SELECT id, rev, digest FROM entries WHERE partition = ? AND id IN ({marks})"  # noqa: S608
                rows = self._do(query, (partition, *some)).fetchall()
                known |= {(partition, record_id): (rev, digest) for record_id, rev, digest in rows}
        return known
