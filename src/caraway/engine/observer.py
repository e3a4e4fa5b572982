"""The observer reads every few seconds the ends of topics and the progress of queries.

It does so in a thread of its own, since Kafka and Spark may answer late.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from caraway.engine.lag import Lag, Tide
from caraway.recurring import Recurring
from caraway.spark.live import RealTimeRows
from caraway.topics.positions import Offsets

LOOK_SECONDS = 5.0
# The looks of an hour. The lag in seconds of a job that is further behind is reported as an hour.
REMEMBERED_LOOKS = 720


class Observer(Recurring):
    """Knows the ends of the topics of all jobs, and how many rows queries have read since their last checkpoint."""

    def __init__(
        self,
        ends_of: Callable[[Iterable[str]], Offsets],
        live_rows: Callable[[], Mapping[str, RealTimeRows]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the ends of topics by `ends_of`, and the rows that queries have read, by run id, by `live_rows`."""
        super().__init__("observer", self.look, LOOK_SECONDS)
        self._ends_of = ends_of
        self._live_rows = live_rows
        self._clock = clock
        self._lock = threading.Lock()
        self._topics: frozenset[str] = frozenset()
        self._tide = Tide(REMEMBERED_LOOKS)
        self._read: Mapping[str, RealTimeRows] = {}
        self._read_before: Mapping[str, RealTimeRows] = {}

    def watch(self, topics: Iterable[str]) -> None:
        """Observe these topics, too."""
        with self._lock:
            self._topics |= {*topics}

    def look(self) -> None:
        """Look at all topics and queries once."""
        with self._lock:
            topics = self._topics
        read = self._live_rows()
        ends = self._ends_of(topics)
        with self._lock:
            self._read_before, self._read = self._read, read
            self._tide.rise(self._clock(), ends)

    def rows(self, run_id: str, batch: int) -> int:
        """Return how many rows of a batch a query has surely processed.

        These are the rows that it had read at the look before the last one. Rows that it has read since then may still
        be on their way through its steps.
        """
        with self._lock:
            read = self._read_before.get(run_id)
        return read.rows if read is not None and read.batch == batch else 0

    def lag(self, topics: Collection[str], done: int) -> Lag | None:
        """Return the lag of a job that has processed `done` records of its topics; None while it isn't known."""
        with self._lock:
            return self._tide.lag(topics, done)
