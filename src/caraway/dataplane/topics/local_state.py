"""The memory that a process has of a topic's records, as of a position, in a file on the disk of its server.

Such a state can always be made again from the topic, so it is kept without a copy, and a damaged one is made anew.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from caraway.errors import UnavailableError

# The size of SQLite's page cache in kB.
CACHE_KB = 8 * 1024
_POSITIONS = 'CREATE TABLE positions (partition INTEGER PRIMARY KEY, "offset" INTEGER NOT NULL, epoch INTEGER);'


class LocalState:
    """The base of states. A state is used by the thread that made it, and by one process at a time.

    Changes are kept in a transaction until `commit`, so that a batch that couldn't be written leaves no trace. All
    methods raise `UnavailableError` if the disk refuses.
    """

    def __init__(self, path: Path, tables: str, *, version: int, what: str) -> None:
        """Open the state in a file, and create it if there is none.

        Args:
            path: The file.
            tables: The statements of SQLite that make the tables, beside that of the positions.
            version: The version of the tables. A state of another version is made anew.
            what: The state in words, for errors.
        """
        self._path = path
        self._tables = f"{tables} {_POSITIONS}"
        self._version = version
        self._what = what
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._database = self._opened()
        except sqlite3.DatabaseError:
            # The file is damaged, or of another release, so a new one takes its place.
            remove(path)
            try:
                self._database = self._opened()
            except sqlite3.Error as error:
                raise self._unavailable(error) from error

    def positions(self) -> dict[int, int]:
        """Return the offset behind the last record that is in the state, by partition; without entry none is."""
        return dict(self._do('SELECT partition, "offset" FROM positions').fetchall())

    def epochs(self) -> dict[int, int]:
        """Return epochs in which the topic had all records before the positions, by partition, where one is known."""
        return dict(self._do("SELECT partition, epoch FROM positions WHERE epoch IS NOT NULL").fetchall())

    def commit(self, positions: Mapping[int, int], epochs: Mapping[int, int] | None = None) -> None:
        """Keep the changes since the last commit, with the offsets behind their records, and epochs of these."""
        known = epochs or {}
        for partition, offset in positions.items():
            self._do("INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", (partition, offset, known.get(partition)))
        self._do("COMMIT")
        self._do("BEGIN")

    def close(self) -> None:
        """Close the file, without the changes since the last commit."""
        self._database.close()

    def _opened(self) -> sqlite3.Connection:
        # Transactions are begun and ended explicitly, so the driver must not begin any by itself.
        database = sqlite3.connect(self._path, isolation_level=None)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            # After a crash of the machine the last commits may be missing, and their records are read again.
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(f"PRAGMA cache_size = -{CACHE_KB}")
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version == 0:
                database.executescript(f"BEGIN; {self._tables} PRAGMA user_version = {self._version}; COMMIT;")
            elif version != self._version:
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
            raise self._unavailable(error) from error

    def _do_many(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        try:
            self._database.executemany(statement, rows)
        except sqlite3.Error as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: sqlite3.Error) -> UnavailableError:
        return UnavailableError(f"{self._what} at {self._path} can't be used: {error}")


def remove(path: Path) -> None:
    """Remove the state in a file, if there is one."""
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
