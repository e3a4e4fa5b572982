"""The records of a topic that were seen already, on the disk of the server that checks them.

A job that starts again sends records again that it has sent since its last checkpoint, and an index may send a row
again that has become what it was. So each put is compared with the last one of its identity.
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

# Partition, identity, revision, and the hash of the row; None for a record without a valid row.
Entry = tuple[int, bytes, bytes, bytes | None]


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
        get = "SELECT rev, digest FROM entries WHERE partition = ? AND id = ?"
        new = []
        for partition, record_id, rev, digest in entries:
            known = self._do(get, (partition, record_id)).fetchone()
            # If a put and a retraction have one revision, the put counts, whichever came first.
            if known is not None and (rev, digest is not None) <= (known[0], known[1] is not None):
                new.append(False)
                continue
            self._do("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", (partition, record_id, rev, digest))
            new.append(digest is not None and (known is None or known[1] != digest))
        return new
