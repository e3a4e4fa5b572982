"""Counts and times of requests, which are noted at each request and added up some requests later.

prometheus_client takes a lock for each count and for each time, and a query has four of these. A note is an append,
and adding up many of them takes no further locks. `python -m bench signals` measures what all signals cost together.
"""

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, repeat
from typing import Generic, TypeVar

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.utils import floatToGoString

# The number of notes that are added up at once. One request waits for that, some 50 us.
MOST_NOTES = 64

T = TypeVar("T")


class Notes(Generic[T]):
    """Notes of what happened, which are added up when there are many of them, or when the sums are read. Thread safe.

    None is lost: a note that comes while others are added up waits for the next time.
    """

    def __init__(self, add_up: Callable[[Sequence[T]], object]) -> None:
        """Take notes; `add_up` adds some of them to sums, one thread at a time."""
        self._add_up = add_up
        self._waiting = deque[T]()
        self._adding = threading.Lock()

    def note(self, one: T) -> None:
        """Take a note."""
        self._waiting.append(one)
        # If another thread is adding notes up, this one doesn't wait: that thread, or the next call, adds this note up.
        if len(self._waiting) >= MOST_NOTES and self._adding.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._adding.release()

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Add up all notes; while the `with` block reads the sums, they stay as they are."""
        with self._adding:
            self._settle()
            yield

    def _settle(self) -> None:
        waiting = self._waiting
        self._add_up([waiting.popleft() for _ in range(len(waiting))])


class Times:
    """The times of a histogram of Prometheus, in seconds, by the values of its labels. Not thread safe."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        """Count none; a time is in the first bucket whose bound isn't less than it."""
        self._about = name, documentation, labels
        self._bounds = [*bounds, float("inf")]
        self._names = [floatToGoString(bound) for bound in self._bounds]  # type: ignore[no-untyped-call]
        self._series: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}

    def add(self, labels: tuple[str, ...], seconds: Collection[float]) -> None:
        """Add times to a series."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = [0] * len(self._bounds), [0.0]
        counts, total = series
        for bucket in map(bisect_left, repeat(self._bounds), seconds):
            counts[bucket] += 1
        total[0] += sum(seconds)

    def family(self) -> HistogramMetricFamily:
        """Return the metric with its series."""
        family = self.describe()
        for labels, (counts, (total,)) in self._series.items():
            family.add_metric(labels, list(zip(self._names, accumulate(counts), strict=True)), total)
        return family

    def describe(self) -> HistogramMetricFamily:
        """Return the metric without series."""
        name, documentation, labels = self._about
        return HistogramMetricFamily(name, documentation, labels=labels)
