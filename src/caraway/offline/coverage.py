"""Rows whose features are computed from less history than they ask for.

A row asks for records before the first one of a dataset if it is earlier than that, or if a window reaches back beyond
it. The features are those that would have been served, but for training they may mean something else: a count of 30
days that began three days ago isn't comparable with one that is complete.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from caraway.dataplane.archive.store.columns import columns_of
from caraway.dataplane.archive.store.reading import ArchivedTopics, Part, TopicParts
from caraway.graph.plan.model import IndexPlan, TopicPlan
from caraway.graph.windows import ContinuousWindow, HoppingWindow
from caraway.offline.sizes import DatasetSize

# The earliest time of a topic is also looked for among its records that aren't archived yet, if there are at most this
# many. If there are more, only the earliest time in the archive counts.
LOOKED_AT = 100_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Coverage:
    """The history of a dataset beside that which a query asks for.

    Attributes:
        dataset: The dataset.
        begins_us: The event time of its first record in microseconds; None if there is none, or it isn't known.
        reach_us: The length of the longest window that is looked up; 0 without any.
    """

    dataset: str
    begins_us: int | None
    reach_us: int

    def lacking(self, times_us: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for which times the query asks for more history than there is."""
        if self.begins_us is None:
            return np.zeros(len(times_us), np.bool_)
        return times_us < self.begins_us + self.reach_us

    def told(self) -> str:
        """Return where the history begins, for people."""
        begins = _EPOCH + timedelta(microseconds=self.begins_us or 0)
        return f"{self.dataset} begins at {begins.replace(tzinfo=None).isoformat(sep=' ')} UTC"


def coverage_of(
    sizes: Iterable[DatasetSize], indexes: Iterable[IndexPlan], topics: Iterable[TopicPlan], source: ArchivedTopics
) -> list[Coverage]:
    """Return the histories of the datasets that a query reads.

    Args:
        sizes: The datasets.
        indexes: All indexes of the graph.
        topics: All topics.
        source: The records of topics.

    Raises `UnavailableError` if the broker or the object store doesn't answer.
    """
    plans = {plan.dataset: plan for plan in indexes}
    by_name = {topic.name: topic for topic in topics}
    return [
        Coverage(
            size.dataset,
            _begin(by_name[plans[size.dataset].topic], size.found, source),
            max((_reach(plans[size.dataset], field) for field in size.fields), default=0),
        )
        for size in sizes
    ]


def notes(coverage: Sequence[Coverage], times_us: Sequence[int | None]) -> list[str | None]:
    """Return for each row which datasets have less history than it asks for; None if all have enough."""
    known = np.array([0 if time_us is None else time_us for time_us in times_us], np.int64)
    there = np.array([time_us is not None for time_us in times_us], np.bool_)
    found: list[str | None] = [None] * len(times_us)
    for part in coverage:
        told = part.told()
        for row in np.flatnonzero(part.lacking(known) & there).tolist():
            before = found[row]
            found[row] = told if before is None else f"{before}; {told}"
    return found


def _begin(topic: TopicPlan, found: TopicParts, source: ArchivedTopics) -> int | None:
    least = [] if found.earliest_us is None else [found.earliest_us]
    waiting = [part for part in found.parts if not part.files]
    if sum(part.rows for part in waiting) <= LOOKED_AT:
        least += [time_us for part in waiting if (time_us := _earliest(topic, found, part, source)) is not None]
    elif found.earliest_us is None:
        return None
    return min(least, default=None)


def _earliest(topic: TopicPlan, found: TopicParts, part: Part, source: ArchivedTopics) -> int | None:
    times = source.read(topic, found, part, ())[columns_of(topic.schema).time].to_physical()
    least = times.min()
    return least if isinstance(least, int) else None


def _reach(plan: IndexPlan, field: str) -> int:
    windows = [spec.window for spec in plan.aggregates if spec.into == field]
    lengths = [window.length_us for window in windows if isinstance(window, ContinuousWindow | HoppingWindow)]
    return max((length for length in lengths if length is not None), default=0)
