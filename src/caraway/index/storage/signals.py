"""Signals of the writer of a database to the processes that read it (`caraway.index.storage.follower`)."""

import threading
import time
from pathlib import Path

from rocksdict import Rdict

from caraway.index.storage.shared_counters import SharedCounters

# The counters: a number that differs after each start, RocksDB's number of the last write since the start, and whether
# reads are refused because the database was damaged and doesn't have all of its content again.
GENERATION, SEQUENCE, REFUSING = 0, 1, 2
COUNTERS = 3


def counters_of(path: Path) -> SharedCounters:
    """Return the counters of the database in the folder `path`; they lie beside it, as it may be moved aside."""
    return SharedCounters(path.with_name(f"{path.name}.board"), COUNTERS)


class Signals:
    """The writer's end of the counters. Thread safe."""

    def __init__(self, path: Path) -> None:
        """Signal to the readers of the database in the folder `path`."""
        self._counters = counters_of(path)
        self._lock = threading.Lock()

    def opened(self, db: Rdict) -> None:
        """Have the readers open the database anew."""
        # The generation is written after the sequence is reset: a process that sees the new generation opens the
        # database anew, and then has all of it.
        self._counters[SEQUENCE] = 0
        self._counters[GENERATION] = time.time_ns()
        self.written(db)

    def written(self, db: Rdict) -> None:
        """Have the readers catch up with the last write."""
        # Two threads write. Without the lock the older sequence number might be stored last.
        with self._lock:
            self._counters[SEQUENCE] = db.latest_sequence_number()

    def refuse(self, *, refusing: bool) -> None:
        """Have the readers refuse reads, or allow them again."""
        self._counters[REFUSING] = int(refusing)
