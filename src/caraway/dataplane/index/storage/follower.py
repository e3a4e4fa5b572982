"""Reading the database of an index in other processes than the one that writes it (decision 22).

RocksDB lets these processes open the database as a secondary instance: it shows the tables on disk and, after a
catch-up, the newer records of the write-ahead log. The writer stores the number of its last write in shared counters. A
read compares this number with the last write that the instance shows, and catches up first if the instance is behind.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rocksdict import AccessType, Cache, Rdict, RdictIter

from caraway.dataplane.index.storage.database import TRANSLATED, DamagedError, database_options
from caraway.dataplane.index.storage.geometry import DEFAULT_GEOMETRY, Geometry
from caraway.dataplane.index.storage.repair import FORMAT_KEY, mark
from caraway.dataplane.index.storage.signals import GENERATION, REFUSING, SEQUENCE, counters_of
from caraway.dataplane.index.storage.store import format_of
from caraway.errors import UnavailableError

LOGGER = logging.getLogger(__name__)

# The bytes of this process's block cache: half of those of the writer's cache, because the writer also reads tiles and
# locations in order to change them.
CACHE_BYTES = 48 << 20
# A catch-up tries at most this many times to reach the writer's last write. An attempt may miss the records of a log
# that the writer is just flushing to a table; the next attempt finds them if the table is finished by then. After the
# last attempt the database is opened anew, which reads all logs that aren't in tables.
ATTEMPTS = 5
# A catch-up opens the database at most this many times. An opening may miss the last write too, if a log is removed
# after RocksDB has listed the tables and before it lists the logs.
OPENINGS = 3
# The seconds before another attempt to open a database that couldn't be opened. Meanwhile reads use the database that
# was opened before.
RETRY_S = 0.2
# The property of RocksDB with the number of the oldest log whose records aren't all in tables. When the number grows,
# logs were removed, and the database is opened anew, which takes some 10 ms for each 16 MiB that were written.
# Otherwise a deleted entry could come back: this process has the entry in memory from an older log, but didn't read the
# removed log with the deletion, and a compaction has dropped the deletion from the tables too.
OLDEST_LOG = "rocksdb.min-log-number-to-keep"


class IndexFollower:
    """A reader of a database that another process writes. Thread safe.

    While the writer is away, reads see what it wrote last. After its return they see the database that it has then.
    """

    def __init__(
        self,
        path: Path,
        own: Path,
        *,
        geometry: Geometry = DEFAULT_GEOMETRY,
        cache_bytes: int = CACHE_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to read the database in the folder `path`, which need not exist yet.

        RocksDB writes the log files of this process into the folder `own`. `clock` returns the time in seconds.
        """
        self.geometry = geometry
        self._path = path
        self._own = own
        self._options = database_options(Cache(cache_bytes))
        # The limit of -1 keeps all tables open, because an open table stays readable after the writer has removed its
        # file. The tables are opened by one thread. Several threads would all be started at each catch-up, which would
        # take 500 us instead of 20.
        self._options.set_max_open_files(-1)
        self._options.set_max_file_opening_threads(1)
        self._counters = counters_of(path)
        self._clock = clock
        self._lock = threading.Lock()
        self._db: Rdict | None = None
        self._generation = 0
        self._reached = 0
        self._oldest_log: int | None = None
        self._retry_at = float("-inf")
        self._failure = "its writer hasn't started yet"
        self._suspect = 0

    @property
    def refusing(self) -> bool:
        """True while reads are refused, because the database was damaged and doesn't have all of its content again."""
        return bool(self._counters[REFUSING])

    def iterator(self) -> RdictIter:
        """Return an iterator over all entries as they are now: it shows earlier writes and no later ones.

        Raises `UnavailableError` if the database hasn't been opened yet.
        """
        counters = self._counters
        if counters[GENERATION] != self._generation or counters[SEQUENCE] > self._reached:
            self.catch_up()
        db = self._db
        if db is None:
            raise UnavailableError(f"the index can't be read yet: {self._failure}")
        return db.iter()

    def catch_up(self) -> None:
        """Read what the writer has written since the last catch-up; to be called now and then even if nothing is read.

        A catch-up closes the logs and tables that the writer has removed; they stay on disk while a process has them
        open.
        """
        with self._lock:
            generation, wanted = self._counters[GENERATION], self._counters[SEQUENCE]
            if self._db is None or generation != self._generation:
                if self._clock() >= self._retry_at:
                    self._open(generation)
                # An opening, like a catch-up, may miss the writer's last records. In that case the code below catches
                # up.
                if self._db is None or self._generation != generation or self._reached >= wanted:
                    return
            try:
                with TRANSLATED:
                    for _ in range(ATTEMPTS):
                        self._db.try_catch_up_with_primary()
                        self._reached = self._db.latest_sequence_number()
                        if self._reached >= wanted:
                            break
                    reopen = self._db.property_int_value(OLDEST_LOG) != self._oldest_log
                if reopen:
                    self._open(generation)
                for _ in range(OPENINGS):
                    if self._reached >= wanted:
                        break
                    self._open(generation)
            except UnavailableError as error:
                LOGGER.warning("the index at %s is opened again: %s", self._path, error)
                self._open(generation)

    def mark_damaged(self, reason: str) -> None:
        """Have the next read open the database anew, because this read found damage.

        If the database is found damaged again after that, the next start of the writer is to build it anew.
        """
        with self._lock:
            if self._suspect == self._counters[GENERATION]:
                LOGGER.error("the index at %s is damaged: %s", self._path, reason)
                mark(self._path, reason)
            self._suspect = self._counters[GENERATION]
            # The writer never has generation 0, so the next read opens the database anew. Reads in progress go on with
            # the database that they have.
            self._generation = 0

    def _open(self, generation: int) -> None:
        """Open the present database and read it from now on; if that fails, go on with the one opened before."""
        try:
            db = self._opened()
        except UnavailableError as error:
            self._retry_at = self._clock() + RETRY_S
            self._failure = str(error)
            level = logging.ERROR if isinstance(error, DamagedError) else logging.INFO
            LOGGER.log(level, "the index at %s can't be opened to be read: %s", self._path, error)
            return
        # An iterator keeps a reference to its database, so reads in progress go on with the database that is replaced
        # here.
        self._db, self._generation, self._reached = db, generation, db.latest_sequence_number()
        self._oldest_log = db.property_int_value(OLDEST_LOG)
        LOGGER.info("reading the index at %s", self._path)

    def _opened(self) -> Rdict:
        if not (self._path / "CURRENT").exists():
            raise UnavailableError("there is no database yet")
        self._own.mkdir(parents=True, exist_ok=True)
        with TRANSLATED:
            db = Rdict(str(self._path), self._options, access_type=AccessType.secondary(str(self._own)))
            wanted, found = format_of(self.geometry), db.get(FORMAT_KEY)
        if found != wanted:
            raise UnavailableError(f"its format is {found!r}, wanted is {wanted!r}")
        return db
