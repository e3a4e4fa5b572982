"""Looks at topics and running queries every few seconds, in a thread of its own: both may take long to answer."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from caraway.engine.jobs import brief
from caraway.engine.lag import Lag, Tide
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
        live_rows: Callable[[], Mapping[str, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look through `ends_of` and `live_rows`, which gives rows by the id of a query's run."""
        self._ends_of = ends_of
        self._live_rows = live_rows
        self._clock = clock
        self._lock = threading.Lock()
        self._topics: frozenset[str] = frozenset()
        self._tide = Tide(REMEMBERED_LOOKS)
        self._rows: Mapping[str, int] = {}
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
        rows = self._live_rows()
        ends = self._ends_of(topics)
        with self._lock:
            self._rows = rows
            self._tide.rise(self._clock(), ends)

    def rows(self, run_id: str) -> int:
        """Return how many rows a query has read since its last checkpoint."""
        with self._lock:
            return self._rows.get(run_id, 0)

    def lag(self, topics: Collection[str], done: int) -> Lag | None:
        """Return how far a job is behind that has done so many records of its topics; None while that isn't known."""
        with self._lock:
            return self._tide.lag(topics, done)

    def _run(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001
                # A broker that is away, a JVM that is going: the jobs themselves tell of it.
                log.debug("no look at topics and queries: %s", brief(error))
