"""Signals of the writer of a database to the processes that read it (`caraway.dataplane.index.storage.follower`)."""

import threading
import time
from pathlib import Path

from rocksdict import Rdict

from caraway.dataplane.index.storage.shared_counters import SharedCounters

# The positions of the counters. The generation changes whenever the writer opens a database. The sequence is RocksDB's
# number of the last write in this database. The third counter is 1 while reads are refused, because the database was
# damaged and the new one doesn't have all of the content yet.
GENERATION, SEQUENCE, REFUSING = 0, 1, 2
COUNTERS = 3


def counters_of(path: Path) -> SharedCounters:
    """Return the counters of the database in the folder `path`; their file lies beside this folder, which may move."""
    return SharedCounters(path.with_name(f"{path.name}.board"), COUNTERS)


class Signals:
    """The writer's end of the counters. Thread safe."""

    def __init__(self, path: Path) -> None:
        """Signal to the readers of the database in the folder `path`."""
        self._counters = counters_of(path)
        self._lock = threading.Lock()

    def opened(self, db: Rdict) -> None:
        """Have the readers open the database anew."""
        # The sequence is reset before the generation is written. Otherwise a reader could see the new generation with
        # the sequence of the old database, which may be greater than any that the new database has.
        self._counters[SEQUENCE] = 0
        self._counters[GENERATION] = time.time_ns()
        self.written(db)

    def written(self, db: Rdict) -> None:
        """Have the readers catch up with the last write."""
        # Several threads write to the database, such as the two that feed the index. Without the lock one might store
        # its sequence number after another has stored a greater one, and readers would miss the last write.
        with self._lock:
            self._counters[SEQUENCE] = db.latest_sequence_number()

    def refuse(self, *, refusing: bool) -> None:
        """Have the readers refuse reads, or allow them again."""
        self._counters[REFUSING] = int(refusing)
