"""The records of a topic that were seen already, on the disk of the server that checks them.

A job that starts again sends records again that it has sent since its last checkpoint, and an index may send a row
again that has become what it was. So each put is compared with the last one of its identity. The state can always be
made again from the topic, so it is kept without a copy.
"""

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from caraway.errors import UnavailableError

# The version of the tables below. A state of another version is made anew from the topic.
VERSION = 1
# The kB of pages that SQLite keeps in memory.
CACHE_KB = 8 * 1024
# The size of a hash of a row. Two rows of one identity have the same one by chance in one of 2^64 cases.
DIGEST_BYTES = 8

_TABLES = """
CREATE TABLE entries (
    partition INTEGER NOT NULL, id BLOB NOT NULL, rev BLOB NOT NULL, digest BLOB,
    PRIMARY KEY (partition, id)
) WITHOUT ROWID;
CREATE TABLE positions (partition INTEGER PRIMARY KEY, "offset" INTEGER NOT NULL);
"""

# Partition, identity, revision, and the hash of the row; None for a record without a valid row.
Entry = tuple[int, bytes, bytes, bytes | None]


def digest_of(time: bytes, row: bytes) -> bytes:
    """Return the hash of a row and its event time."""
    found = hashlib.blake2b(time, digest_size=DIGEST_BYTES)
    found.update(row)
    return found.digest()


class SeenRecords:
    """The newest record of each identity, by partition. It is used by the thread that made it, and by one process.

    Changes are kept in a transaction until `commit`, so that a pass that couldn't be recorded leaves no trace. All
    methods raise `UnavailableError` if the disk refuses.
    """

    def __init__(self, path: Path) -> None:
        """Open the state in a file, and create it if there is none."""
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._database = self._opened()
        except sqlite3.DatabaseError:
            # The file is damaged, or of another release.
            remove(path)
            try:
                self._database = self._opened()
            except sqlite3.Error as error:
                raise _unavailable(path, error) from error

    def positions(self) -> dict[int, int]:
        """Return the offset behind the last record that is in the state, by partition; without entry none is."""
        return dict(self._do('SELECT partition, "offset" FROM positions').fetchall())

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

    def commit(self, positions: Mapping[int, int]) -> None:
        """Keep the records since the last commit, with the offsets behind them."""
        for position in positions.items():
            self._do("INSERT OR REPLACE INTO positions VALUES (?, ?)", position)
        self._do("COMMIT")
        self._do("BEGIN")

    def close(self) -> None:
        """Close the file, without the changes since the last commit."""
        self._database.close()

    def _opened(self) -> sqlite3.Connection:
        # Transactions are begun and ended explicitly.
        database = sqlite3.connect(self._path, isolation_level=None)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            # After a crash of the machine the last commits may be missing, and their records are read again.
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(f"PRAGMA cache_size = -{CACHE_KB}")
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version == 0:
                database.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
            elif version != VERSION:
                raise sqlite3.DatabaseError(f"it has version {version}")  # noqa: TRY301 (closes the file, too)
            database.execute("BEGIN")
        except BaseException:
            database.close()
            raise
        return database

    def _do(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        try:
            return self._database.execute(statement, values)
        except sqlite3.Error as error:
            raise _unavailable(self._path, error) from error


def remove(path: Path) -> None:
    """Remove the state in a file, if there is one."""
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _unavailable(path: Path, error: sqlite3.Error) -> UnavailableError:
    return UnavailableError(f"the records that were seen, at {path}, can't be used: {error}")
