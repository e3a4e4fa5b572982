"""The topics that sources write to: where they end, and the marks on them."""

import threading
from collections.abc import Sequence

from caraway.dataplane.ingest.marks import Starts, Written, read_marks
from caraway.dataplane.topics.positions import TopicEnds

# Seconds that reading back marks may take. All records since the source's last checkpoint are read: rows of a second or
# two by its worker, and all that others wrote to these topics while no server read the source.
READ_BACK_S = 120.0


class SourceTopics:
    """Answers questions about topics. Thread safe."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Ask the broker "host:port"; the first question connects to it."""
        self._bootstrap_servers = bootstrap_servers
        self._ends: TopicEnds | None = None
        self._lock = threading.Lock()

    def ends(self, names: Sequence[str]) -> Starts:
        """Return the offset that the next record of each partition will have; topics that don't exist are left out.

        Raises `UnavailableError` if the broker doesn't answer.
        """
        with self._lock:
            self._ends = self._ends or TopicEnds(self._bootstrap_servers)
            return self._ends.ends(names)

    def marks(self, starts: Starts, header: str, key: str) -> Written:
        """Return the marks of a source on the records from some offsets until now.

        Raises `UnavailableError` if the broker doesn't answer in time.
        """
        return read_marks(self._bootstrap_servers, lambda _: starts, header=header, key=key, timeout_s=READ_BACK_S)
