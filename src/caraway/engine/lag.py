"""How far jobs are behind, in records and in time."""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from caraway.topics.positions import Offsets

# Of each topic how many records there are.
Totals = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a job is behind: records that are waiting, and since when the oldest of them does."""

    records: int
    seconds: float


class Tide:
    """Remembers how far topics reached at what time.

    What came in since the look two before the last one doesn't count. A job's own count of rows comes to the driver by
    heartbeats, and is that of the look before (`Observer.rows`): compared with newer ends a job that has caught up
    would seem to be behind.
    """

    def __init__(self, looks: int) -> None:
        """Remember so many looks."""
        self._looks: deque[tuple[float, Totals]] = deque(maxlen=looks)

    def rise(self, at: float, ends: Offsets) -> None:
        """Note the ends of topics at a time, in seconds."""
        self._looks.append((at, totals(ends)))

    def lag(self, topics: Collection[str], done: int) -> Lag | None:
        """Return how far a job is behind that has done so many records of its topics; None while that isn't known."""
        looks = [(at, sum(ends[topic] for topic in topics)) for at, ends in self._looks if ends.keys() >= {*topics}]
        if not looks:
            return None
        now = looks[-1][0]
        _, reached = looks[-min(len(looks), 3)]
        if done >= reached:
            return Lag(records=0, seconds=0.0)
        # Of older times nothing is known but that it is at least as long.
        since = max((at for at, end in looks if end <= done), default=looks[0][0])
        return Lag(records=reached - done, seconds=round(now - since, 1))


def totals(offsets: Offsets) -> Totals:
    """Add up the partitions of each topic."""
    return {topic: sum(partitions.values()) for topic, partitions in offsets.items()}


def records_between(start: Offsets, end: Offsets, beginnings: Offsets) -> int:
    """Count the records from one position to another; a partition that `start` lacks is read from its beginning."""
    return sum(
        max(0, offset - start.get(topic, {}).get(partition, beginnings.get(topic, {}).get(partition, 0)))
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    )
