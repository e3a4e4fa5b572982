"""Looks at topics and running queries every few seconds, in a thread of its own: both may take long to answer."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from caraway.engine.jobs import brief
from caraway.engine.lag import Lag, Tide
from caraway.spark.live import RealTimeRows
from caraway.topics.positions import Offsets

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
# An hour: a job that is further behind than that is just very far behind.
REMEMBERED_LOOKS = 720


class Observer:
    """Knows the ends of the topics of all jobs, and the rows that queries have read since their last checkpoint."""

    def __init__(
        self,
        ends_of: Callable[[Iterable[str]], Offsets],
        live_rows: Callable[[], Mapping[str, RealTimeRows]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look through `ends_of` and `live_rows`, which returns what queries have read, by the ids of their runs."""
        self._ends_of = ends_of
        self._live_rows = live_rows
        self._clock = clock
        self._lock = threading.Lock()
        self._topics: frozenset[str] = frozenset()
        self._tide = Tide(REMEMBERED_LOOKS)
        self._read: Mapping[str, RealTimeRows] = {}
        self._read_before: Mapping[str, RealTimeRows] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._closing.set()

    def watch(self, topics: Iterable[str]) -> None:
        """Look at these topics as well."""
        with self._lock:
            self._topics |= {*topics}

    def look(self) -> None:
        """Look once."""
        with self._lock:
            topics = self._topics
        read = self._live_rows()
        ends = self._ends_of(topics)
        with self._lock:
            self._read_before, self._read = self._read, read
            self._tide.rise(self._clock(), ends)

    def rows(self, run_id: str, batch: int) -> int:
        """Return how many rows of a batch a query has done with.

        These are what it had read a look ago: of what was read just now, some is still on its way through the query.
        """
        with self._lock:
            read = self._read_before.get(run_id)
        return read.rows if read is not None and read.batch == batch else 0

    def lag(self, topics: Collection[str], done: int) -> Lag | None:
        """Return how far a job is behind that has done so many records of its topics; None while that isn't known."""
        with self._lock:
            return self._tide.lag(topics, done)

    def _run(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001
                # A broker that is away, a JVM that is going: the jobs themselves report it.
                log.debug("no look at topics and queries: %s", brief(error))
