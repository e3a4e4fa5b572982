"""The lag of jobs, in records and in time, as an observer of topics and queries computes it every few seconds."""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from caraway.dataplane.streams.engine.losses import LedEnds, steady
from caraway.dataplane.streams.spark.live import RealTimeRows
from caraway.dataplane.topics.positions import Offsets
from caraway.graph.plan.model import TopicKind, TopicPlan
from caraway.process.recurring import Recurring

LOOK_SECONDS = 5.0
# The number of looks that are remembered: those of the last hour. If a job is more than an hour behind, its lag in
# seconds is reported as an hour.
REMEMBERED_LOOKS = 720
# The number of messages of each topic: the sum of the offsets of its partitions.
Totals = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The lag of a job: the number of waiting records, and for how long the oldest of them has waited."""

    records: int
    seconds: float


class Tide:
    """Remembers the ends of topics at the last looks.

    A job's lag is measured against the ends of the look two before the last one. Spark's driver learns late how many
    rows a job has processed, so that number is up to two looks old (`Observer.rows`). Compared with newer ends, a job
    that has caught up would seem to be behind.
    """

    def __init__(self, looks: int) -> None:
        """Remember the last `looks` at the ends of topics."""
        self._looks: deque[tuple[float, Totals]] = deque(maxlen=looks)

    def rise(self, at: float, ends: Offsets) -> None:
        """Note the ends of topics at a time, in seconds."""
        self._looks.append((at, totals(ends)))

    def lag(self, topics: Collection[str], done: int) -> Lag | None:
        """Return the lag of a job that has processed `done` messages of its topics; None while it isn't known.

        The lag counts messages as records.
        """
        looks = [(at, sum(ends[topic] for topic in topics)) for at, ends in self._looks if ends.keys() >= {*topics}]
        if not looks:
            return None
        now = looks[-1][0]
        _, reached = looks[-min(len(looks), 3)]
        if done >= reached:
            return Lag(records=0, seconds=0.0)
        # If the ends were beyond `done` at the oldest look already, the true lag is longer than the returned one.
        since = max((at for at, end in looks if end <= done), default=looks[0][0])
        return Lag(records=reached - done, seconds=round(now - since, 1))


class Observer(Recurring):
    """Knows the ends of the topics of all jobs, and how many messages queries have read since their last checkpoint.

    It reads both in a thread of its own, since Kafka and Spark may answer late.
    """

    def __init__(
        self,
        ends_of: Callable[[Iterable[str]], Offsets],
        live_rows: Callable[[], Mapping[str, RealTimeRows]],
        sizes_of: Callable[[Iterable[str]], Mapping[str, float]],
        clock: Callable[[], float] = time.monotonic,
        led_ends_of: Callable[[Iterable[str]], LedEnds] = lambda _: {},
    ) -> None:
        """Prepare to look.

        Args:
            ends_of: Returns the ends of topics.
            live_rows: Returns how many messages queries have read, by run id.
            sizes_of: Returns how many records the last messages of topics have on average.
            clock: Returns the time in seconds.
            led_ends_of: Returns the ends of topics with the epochs of their leaders.
        """
        super().__init__("observer", self.look, LOOK_SECONDS)
        self._ends_of = ends_of
        self._live_rows = live_rows
        self._sizes_of = sizes_of
        # For each topic of events, whose messages may contain several records: the sum of its end offsets when its last
        # messages were sampled, and the average number of records per message.
        self._sizes: dict[str, tuple[int, float]] = {}
        self._clock = clock
        self._lock = threading.Lock()
        self._topics: frozenset[str] = frozenset()
        # The topics that jobs write. `_led` has the last two looks at the ends of these topics and of the topics that
        # jobs read.
        self._written: frozenset[str] = frozenset()
        self._led_ends_of = led_ends_of
        self._led: tuple[LedEnds, LedEnds] = ({}, {})
        self._tide = Tide(REMEMBERED_LOOKS)
        self._read: Mapping[str, RealTimeRows] = {}
        self._read_before: Mapping[str, RealTimeRows] = {}

    def watch(self, topics: Iterable[TopicPlan], written: Iterable[str] = ()) -> None:
        """Observe these topics, too, and the ends of those that are written."""
        with self._lock:
            self._written |= frozenset(written)
            for topic in topics:
                self._topics |= {topic.name}
                if topic.kind is TopicKind.EVENTS:
                    self._sizes.setdefault(topic.name, (0, 1.0))

    def look(self) -> None:
        """Look at all topics and queries once."""
        with self._lock:
            topics, written = self._topics, self._written
        read = self._live_rows()
        ends, led = self._ends_of(topics), self._led_ends_of(topics | written)
        with self._lock:
            self._read_before, self._read = self._read, read
            self._led = (self._led[1], led)
            self._tide.rise(self._clock(), ends)
            known = dict(self._sizes)
        reached = totals(ends)
        grown = [topic for topic, (end, _) in known.items() if reached.get(topic, 0) > end]
        sizes = self._sizes_of(grown)
        with self._lock:
            self._sizes |= {topic: (reached[topic], size) for topic, size in sizes.items()}

    def rows(self, run_id: str, batch: int) -> int:
        """Return how many messages of a batch a query has surely processed.

        These are those that it had read at the look before the last one. The rows of messages that it has read since
        then may still be on their way through its steps.
        """
        with self._lock:
            read = self._read_before.get(run_id)
        return read.rows if read is not None and read.batch == batch else 0

    def steady_ends(self) -> LedEnds:
        """Return the ends of the partitions that have lost nothing between the last two looks."""
        with self._lock:
            before, now = self._led
        return steady(before, now)

    def lag(self, topics: Collection[str], done: int) -> Lag | None:
        """Return the lag of a job that has processed `done` messages of its topics; None while it isn't known.

        Its number of records is estimated from the topic with the largest messages.
        """
        size = self.size(topics)
        with self._lock:
            lag = self._tide.lag(topics, done)
        return None if lag is None else replace(lag, records=round(lag.records * size))

    def size(self, topics: Collection[str]) -> float:
        """Return about how many records a message has, of the topic with the largest messages; at least 1."""
        with self._lock:
            return max((self._sizes[topic][1] for topic in topics if topic in self._sizes), default=1.0)


def totals(offsets: Offsets) -> Totals:
    """Return the sum over the partitions of each topic."""
    return {topic: sum(partitions.values()) for topic, partitions in offsets.items()}


def messages_between(start: Offsets, end: Offsets, beginnings: Offsets) -> int:
    """Return the number of messages between two positions; a partition missing in `start` counts from its beginning."""
    return sum(
        max(0, offset - start.get(topic, {}).get(partition, beginnings.get(topic, {}).get(partition, 0)))
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    )
