"""The records of a topic that were seen already, on the disk of the server that checks them.

A job that starts again sends records again that it has sent since its last checkpoint, and an index may send a row
again that has become what it was. So each put is compared with the last one of its identity.

None may be forgotten while the topic is checked: no topic of a dataset forgets its records before the archive has them,
and a job whose checkpoint is lost begins with the first one and sends all of its results again. So the file grows with
the topic, and ends with the check (`caraway.offline.monitoring.quality.follower`). It is kept small instead:

* On a topic whose records may be revised there is one entry for each identity, however often its record comes.
* On all others an identity has one row, so it is enough to know which identities came. Those of source records are
  positions, which are close to each other: a bit for each, in compressed blocks.
"""

import hashlib
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from caraway.dataplane.topics.blocks import MAX_RECORDS
from caraway.dataplane.topics.identity import ID_BYTES
from caraway.dataplane.topics.local_state import LocalState

# The version of the tables below. A state of another version is made anew from the topic.
VERSION = 3
# The bytes of the hash of a row. Two different rows of one identity have the same hash by chance in one of 2^64 cases.
DIGEST_BYTES = 8

_TABLES = """
CREATE TABLE entries (
    partition INTEGER NOT NULL, id BLOB NOT NULL, rev BLOB NOT NULL, digest BLOB,
    PRIMARY KEY (partition, id)
) WITHOUT ROWID;
CREATE TABLE blocks (
    partition INTEGER NOT NULL, source INTEGER NOT NULL, block INTEGER NOT NULL, bits BLOB NOT NULL,
    PRIMARY KEY (partition, source, block)
) WITHOUT ROWID;
"""

# The number of identities that one statement looks up. SQLite allows at least 32,766 values in a statement.
LOOKED_UP = 500

# A block is a bitmap of the records of 256 offsets of a source's topic. Each offset has 128 bits, since a message has
# at most MAX_RECORDS (100) records. A block is 4 KB before it is compressed.
OFFSETS_SHIFT, RECORDS_SHIFT = 8, (MAX_RECORDS - 1).bit_length()
BLOCK_BYTES = 1 << (OFFSETS_SHIFT + RECORDS_SHIFT - 3)
_POSITION = struct.Struct(">QHH")
_COMPRESSION = 1

# The partition (0 for all if records may come to any partition), the identity, the revision, and the hash of the row.
# The hash is None if the record puts no row.
Entry = tuple[int, bytes, bytes, bytes | None]
# Partition and identity.
_Key = tuple[int, bytes]
# Partition, partition of the source, and number of the block.
_Block = tuple[int, int, int]


def digest_of(time: bytes, row: bytes) -> bytes:
    """Return the hash of a row and its event time."""
    found = hashlib.blake2b(time, digest_size=DIGEST_BYTES)
    found.update(row)
    return found.digest()


class SeenRecords(LocalState):
    """The newest record of each identity, by partition."""

    def __init__(self, path: Path, *, revised: bool = True) -> None:
        """Open the state in a file, and create it if there is none.

        If `revised` is False, the records of an identity are all the same (`TopicPlan.revised`).
        """
        super().__init__(path, _TABLES, version=VERSION, what="the records that were seen")
        self.revised = revised

    def add(self, entries: Sequence[Entry]) -> list[bool]:
        """Add records in their order, and return which of them put a row that wasn't there.

        If the records aren't revised, the hash of a row may be anything but None.
        """
        return self._add_newest(entries) if self.revised else self._add_first(entries)

    def _add_first(self, entries: Sequence[Entry]) -> list[bool]:
        new = [False] * len(entries)
        blocks: dict[_Block, list[tuple[int, int]]] = {}
        others: list[int] = []
        for number, (partition, record_id, _, digest) in enumerate(entries):
            if digest is None:
                continue
            place = _place(record_id)
            if place is None:
                others.append(number)
                continue
            source, block, bit = place
            blocks.setdefault((partition, source, block), []).append((number, bit))
        for key, wanted in blocks.items():
            query = "SELECT bits FROM blocks WHERE partition = ? AND source = ? AND block = ?"
            found = self._do(query, key).fetchone()
            bits = bytearray(BLOCK_BYTES) if found is None else bytearray(zlib.decompress(found[0]))
            changed = False
            for number, bit in wanted:
                mask = 1 << (bit & 7)
                if not bits[bit >> 3] & mask:
                    bits[bit >> 3] |= mask
                    new[number] = changed = True
            if changed:
                packed = zlib.compress(bits, _COMPRESSION)
                self._do("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?)", (*key, packed))
        for number, is_new in zip(others, self._add_newest([entries[number] for number in others]), strict=True):
            new[number] = is_new
        return new

    def _add_newest(self, entries: Sequence[Entry]) -> list[bool]:
        known = self._known(entries)
        changed: dict[_Key, tuple[bytes, bytes | None]] = {}
        new = []
        for partition, record_id, rev, digest in entries:
            key = partition, record_id
            found = known.get(key)
            # If a put and a retraction have the same revision, the put wins, whichever came first.
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


def _place(record_id: bytes) -> tuple[int, int, int] | None:
    """Return the partition of the source, the block and the bit of an identity; None if it is no source record's."""
    if len(record_id) != ID_BYTES:
        return None
    offset, number, source = _POSITION.unpack(record_id)
    if number >> RECORDS_SHIFT or offset >> 63:
        return None
    within = offset & ((1 << OFFSETS_SHIFT) - 1)
    # Bits are ordered by the record's number in its message, then by the message's offset. So if each message has one
    # record, the bits that are set are adjacent, and compress to almost nothing.
    return source, offset >> OFFSETS_SHIFT, number << OFFSETS_SHIFT | within
