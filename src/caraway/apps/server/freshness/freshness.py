"""The freshness of each dataset, which a thread keeps measuring by heartbeats."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import structlog

from caraway.apps.server import metrics
from caraway.apps.server.freshness.arrivals import Arrivals, OutputReader
from caraway.apps.server.freshness.events import Events
from caraway.apps.server.freshness.heartbeats import LONG_AGO, Heartbeats, Served
from caraway.apps.server.history import History
from caraway.apps.server.tracing.spans import Trace
from caraway.apps.server.waiting.goals import Goal
from caraway.dataplane.index.feeding.worker import IndexStatus
from caraway.dataplane.topics.markers import MARKER_KEY
from caraway.dataplane.topics.positions import Offsets, TopicEnds
from caraway.dataplane.topics.producer import TopicWriter
from caraway.dtypes.durations import US_PER_SECOND
from caraway.errors import UnavailableError
from caraway.graph.plan.model import GraphPlan
from caraway.process.private_files import write_whole
from caraway.process.recurring import Recurring
from caraway.state.model import JobRecord

LOG = structlog.get_logger(__name__)

# The first and the longest pause between two looks at a heartbeat under way. The pauses double, so that a delay is
# measured to within its own size, and a heartbeat that is stuck costs only two looks a second.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.004, 0.5
# A heartbeat that follows the rows of traced requests begins at least this many seconds after the one before it.
FOR_EVENTS_S = 1.0
# Seconds between two reads of the engines' reports from Postgres. Engines update the reports every few seconds.
REPORTS_S = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """The freshness of a dataset.

    Attributes:
        dataset: The dataset.
        seconds: How old what queries read is: the age of the oldest heartbeat that isn't readable yet, or if there is
            none, the time that the last one took. None while no heartbeat was readable since the data folder is used.
        delay_seconds: The time that the last heartbeat took from the acceptance of rows until it was readable.
        served_until: All rows accepted before this time, in seconds since the epoch, are readable.
        waits_for: The part at which the oldest heartbeat is that isn't readable; empty if all are.
    """

    dataset: str
    seconds: float | None
    delay_seconds: float | None
    served_until: float | None
    waits_for: str


class _Stored(msgspec.Struct, frozen=True):
    """The state of an index at the last heartbeat, with times since the epoch."""

    done_at: float
    since: float | None
    delay: float


_DECODE_STORED = msgspec.json.Decoder(dict[str, _Stored]).decode


class FreshnessWatch:
    """Measures the freshness of the datasets that branches serve."""

    def __init__(
        self,
        bootstrap_servers: str,
        writer: TopicWriter,
        *,
        plans: Callable[[], Iterable[GraphPlan]],
        positions: Callable[[], Sequence[IndexStatus]],
        jobs: Callable[[], Sequence[JobRecord]],
        arrivals: Arrivals,
        advance_clock: Callable[[bytes, int, Goal], "Sequence[Future[bool]]"],
        interval_s: float,
        file: Path,
        whole: bool,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Prepare; nothing is asked before `start`.

        Args:
            bootstrap_servers: The broker, "host:port".
            writer: Writes markers.
            plans: Returns the plans that branches serve.
            positions: Returns how far each index is.
            jobs: Reads the engines' reports from Postgres.
            arrivals: The arrivals of markers that the indexes have read.
            advance_clock: Closes the windows of an index by the clock, given the index, a time in microseconds since
                the epoch, and a position before which everything is that follows from rows accepted before that time.
            interval_s: The seconds between two heartbeats; 0: there are none.
            file: The file in which ages are stored, so that a server that is started again while an engine is down
                reports the true age.
            whole: False if the indexes are shards.
            clock: Counts seconds.
            wall: Returns the time in seconds since the epoch.
        """
        self._plans = plans
        self._positions = positions
        self._jobs = jobs
        self._clock = clock
        self._wall = wall
        self._interval_s = interval_s
        self._file = file
        self._whole = whole
        self._ports = _Broker(bootstrap_servers, writer)
        self._outputs = OutputReader(bootstrap_servers, arrivals)
        self._events = Events(clock, wall)
        self._advance = advance_clock
        self._heartbeats = Heartbeats(
            self._ports,
            arrivals,
            interval_s,
            metrics.observe_heartbeat,
            self._events.note,
            advance_clock=self._advance_clock,
        )
        self._began_at = LONG_AGO
        self._next_at = LONG_AGO
        self._pause_s = FIRST_PAUSE_S
        self._reports: Sequence[JobRecord] = ()
        self._reported_at = LONG_AGO
        self._served: Mapping[str, Served] = {}
        self._stored: Mapping[str, _Stored] = {}
        self._last_stored = b""
        self._history = History()
        self._recurring = Recurring("freshness", self.step, self._pause, at_once=True, finish=self._outputs.close)

    def start(self) -> None:
        """Start the thread."""
        if self._interval_s:
            self._load()
            self._recurring.start()

    def stop(self, timeout_s: float) -> None:
        """Stop the thread."""
        self._recurring.stop(timeout_s)

    def follow_event(self, trace: Trace, topics: frozenset[str]) -> None:
        """Add to the trace of a log request when its rows have passed each job and index; may be called by any thread.

        A heartbeat follows the rows at once, unless one has begun within the last second.

        Args:
            trace: The trace of the request, whose rows are durable.
            topics: The topics to which they were written.
        """
        if self._interval_s and self._events.add(trace, topics):
            self._recurring.wake()

    def of(self, plan: GraphPlan) -> list[Freshness]:
        """Return the freshness of the datasets of a plan that this server can measure, by name."""
        now, served = self._clock(), self._served
        wall = self._wall() - now
        found = (served.get(index.asset.hex()) for index in plan.indexes)
        return sorted(
            (_freshness(each, now, wall) for each in found if each is not None), key=lambda each: each.dataset
        )

    def ages(self) -> dict[str, float]:
        """Return how old what queries read of each index is, in seconds, by the hexadecimal name of the index."""
        now, served = self._clock(), self._served
        found = {asset: _freshness(each, now, 0.0).seconds for asset, each in served.items()}
        return {asset: seconds for asset, seconds in found.items() if seconds is not None}

    def history(self, plan: GraphPlan, dataset: str | None = None) -> dict[str, list[tuple[int, float]]]:
        """Return the ages of the datasets of a plan over the last day, by name; or of one of them.

        Each is the beginning of a minute, in seconds since the epoch, and the greatest age in it, in seconds.
        """
        found = {
            index.dataset: self._history.of(index.asset.hex())
            for index in plan.indexes
            if index.emits is None and dataset in {None, index.dataset}
        }
        return {dataset: ages for dataset, ages in sorted(found.items()) if ages}

    def step(self) -> None:
        """Begin a heartbeat if it is time to, and move those under way on.

        Raises `UnavailableError` if Kafka or Postgres doesn't answer.
        """
        statuses = self._positions()
        try:
            self._events.begin(self._heartbeats)
            now = self._clock()
            beats = now >= self._next_at or (self._events.wait_for_a_beat and now >= self._began_at + FOR_EVENTS_S)
            if beats:
                self._began_at = now
                self._events.wait_for_a_beat = False
                self._heartbeats.follow(self._plans())
                self._next_at, self._pause_s = self._clock() + self._interval_s, FIRST_PAUSE_S
                followed = {status.topic for status in statuses} if self._whole else set()
                self._heartbeats.begin(self._clock(), followed)
            self._move(statuses)
        finally:
            self._publish(statuses)
        if beats:
            self._history.note(self._wall(), self.ages())
            self._store()

    def _advance_clock(self, asset: bytes, at: float, goal: Goal) -> "Sequence[Future[bool]]":
        return self._advance(asset, round((at + self._wall() - self._clock()) * US_PER_SECOND), goal)

    def _move(self, statuses: Sequence[IndexStatus]) -> None:
        heartbeats = self._heartbeats
        if heartbeats.needs_reports and self._clock() - self._reported_at >= REPORTS_S:
            self._reported_at = self._clock()
            self._reports = self._jobs()
        self._outputs.follow(heartbeats.unread_outputs)
        self._outputs.poll()
        heartbeats.advance(self._clock, statuses, self._reports, whole=self._whole)

    def _pause(self) -> float:
        next_at = min(self._next_at, self._began_at + FOR_EVENTS_S) if self._events.wait_for_a_beat else self._next_at
        left = max(0.0, next_at - self._clock())
        if not self._heartbeats.under_way:
            return left
        pause, self._pause_s = self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)
        return min(pause, left)

    def _publish(self, statuses: Iterable[IndexStatus]) -> None:
        found = {served.asset: served for served in self._heartbeats.report(statuses)}
        now, wall = self._clock(), self._wall() - self._clock()
        self._served = {
            asset: served
            if served.delay is not None or asset not in self._stored
            else _restored(served, self._stored[asset], now, wall)
            for asset, served in found.items()
        }

    def _load(self) -> None:
        try:
            self._stored = _DECODE_STORED(self._file.read_bytes())
        except (OSError, msgspec.DecodeError):
            # At the first start there is no file. A file that can't be read is ignored, and ages begin anew.
            self._stored = {}

    def _store(self) -> None:
        wall = self._wall() - self._clock()
        content = msgspec.json.encode(
            {
                asset: _Stored(
                    round(served.done_at + wall, 3),
                    None if served.since is None else round(served.since + wall, 3),
                    served.delay,
                )
                for asset, served in self._served.items()
                if served.delay is not None
            }
        )
        if content == self._last_stored:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file, content)
            self._last_stored = content
        except OSError as error:
            raise UnavailableError(f"the freshness of datasets can't be stored in {self._file}: {error}") from error


class _Broker:
    """Kafka, as heartbeats need it."""

    def __init__(self, bootstrap_servers: str, writer: TopicWriter) -> None:
        self._ends = TopicEnds(bootstrap_servers)
        self._writer = writer

    def ends(self, topics: Collection[str]) -> Offsets:
        return self._ends.ends(topics)

    def send(self, topic: str, token: bytes, partitions: Collection[int]) -> "Future[None]":
        return self._writer.write_to_all(topic, MARKER_KEY, token, partitions)


def _freshness(served: Served, now: float, wall: float) -> Freshness:
    waits = None if served.since is None else max(0.0, now - served.since)
    known = [seconds for seconds in (served.delay, waits) if seconds is not None]
    return Freshness(
        dataset=served.dataset,
        seconds=round(max(known), 6) if known else None,
        delay_seconds=None if served.delay is None else round(served.delay, 6),
        served_until=None if served.done_at == LONG_AGO else round(served.done_at + wall, 3),
        waits_for=served.waits_for,
    )


def _restored(served: Served, stored: _Stored, now: float, wall: float) -> Served:
    """Return the freshness of an index that hasn't reached a heartbeat of this process, but one of an earlier process.

    A time that lies in the future, because the machine's clock was set back, counts as now.
    """
    begun = [] if served.since is None else [served.since]
    if stored.since is not None:
        begun.append(min(stored.since - wall, now))
    return replace(
        served,
        delay=stored.delay,
        done_at=min(stored.done_at - wall, now),
        since=min(begun, default=None),
    )
