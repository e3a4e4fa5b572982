"""Traced rows on their way: heartbeats behind them show when they have passed each job and index.

Spark passes no headers of records on, so a trace can't go through a job with its rows. A heartbeat that is sent behind
them can: where it has arrived, everything that was before it has arrived, too.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from caraway.apps.server.freshness.heartbeats import Heartbeats, Passed
from caraway.apps.server.tracing.spans import Trace

# The most traced requests that are followed at a time. The trace of a further request ends with its answer.
MOST = 100
# Seconds after which a request isn't followed any more. Longer delays show only in the freshness of datasets.
FOLLOWED_S = 60.0


@dataclass(slots=True)
class _Event:
    """A request whose rows are durable, the topics that have or will have what follows from them, and what is left."""

    trace: Trace
    accepted_at: float
    topics: frozenset[str]
    parts: int = -1
    passed: set[str] = field(default_factory=set)


class Events:
    """The requests that are followed. `add` may be called by any thread, the rest by that of heartbeats only."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        """Prepare.

        Args:
            clock: Counts seconds, as heartbeats do.
            wall: Returns the time in seconds since the epoch.
        """
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()
        self._added: deque[_Event] = deque()
        self._events: list[_Event] = []
        self.wait_for_a_beat = False
        """True if rows were accepted behind which no heartbeat has begun."""

    def add(self, trace: Trace, topics: frozenset[str]) -> bool:
        """Follow the rows of a request that have just become durable on topics; return whether there is room."""
        with self._lock:
            if len(self._added) + len(self._events) >= MOST:
                return False
            self._added.append(_Event(trace, self._clock(), topics))
            return True

    def begin(self, heartbeats: Heartbeats) -> None:
        """Follow what was added, and stop to follow what has taken too long."""
        oldest = self._clock() - FOLLOWED_S
        with self._lock:
            self._events = [e for e in self._events if e.accepted_at >= oldest and len(e.passed) != e.parts]
            added = list(self._added)
            self._added.clear()
            self._events += added
        for event in added:
            event.topics, event.parts = heartbeats.behind(event.topics)
        if added:
            self.wait_for_a_beat = True

    def note(self, passed: Passed) -> None:
        """Add a part to the traces of the requests whose rows have passed it."""
        wall = self._wall() - self._clock()
        for event in self._events:
            known = passed.part in event.passed
            if known or passed.at < event.accepted_at or event.topics.isdisjoint(passed.topics):
                continue
            event.passed.add(passed.part)
            begun = min(max(passed.begun, event.accepted_at), passed.ended)
            event.trace.add(passed.part, begun + wall, passed.ended + wall, {"caraway.part": passed.part})
