"""The lag of jobs, in records and in time."""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from caraway.topics.positions import Offsets

# The number of records of each topic.
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
        """Remember so many looks."""
        self._looks: deque[tuple[float, Totals]] = deque(maxlen=looks)

    def rise(self, at: float, ends: Offsets) -> None:
        """Note the ends of topics at a time, in seconds."""
        self._looks.append((at, totals(ends)))

    def lag(self, topics: Collection[str], done: int) -> Lag | None:
        """Return the lag of a job that has processed `done` records of its topics; None while it isn't known."""
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


def totals(offsets: Offsets) -> Totals:
    """Return the sum over the partitions of each topic."""
    return {topic: sum(partitions.values()) for topic, partitions in offsets.items()}


def records_between(start: Offsets, end: Offsets, beginnings: Offsets) -> int:
    """Return the number of records between two positions; a partition missing in `start` counts from its beginning."""
    return sum(
        max(0, offset - start.get(topic, {}).get(partition, beginnings.get(topic, {}).get(partition, 0)))
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    )
