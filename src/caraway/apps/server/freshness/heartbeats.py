"""Heartbeats along the plans that are served: how far each dataset's index is, as a time of acceptance.

A *mark* of a topic is a time and a position: all rows that were accepted before the time, and all that follows from
them, are before the position. The marks of source topics are their ends. A job turns marks of its inputs into a mark of
its output (by markers, or by the positions that its engine reports), an index that emits rows turns a mark of its topic
into one of the rows' topic, and an index that has reached a mark serves all rows that were accepted before its time.

Each job and index works on one mark at a time and takes the newest one when it is free, so a heartbeat that is stuck
somewhere keeps no other dataset from being measured, and the number of heartbeats under way is bounded.
"""

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol

from caraway.apps.server.freshness.arrivals import Arrivals
from caraway.apps.server.waiting.goals import Goal, has_committed
from caraway.dataplane.index.feeding.worker import IndexStatus
from caraway.dataplane.topics.markers import TOKEN_BYTES, job_tag
from caraway.dataplane.topics.positions import Offsets
from caraway.graph.plan.model import GraphPlan, IndexPlan, JobMode, JobPlan
from caraway.state.model import DesiredState, JobRecord, JobState

LONG_AGO = float("-inf")

# A function that closes the windows of an index by the clock. Its arguments are the index, and the time (by the clock
# of the heartbeats) and the position of a mark. The result has a future for each part of the index, which is False if
# that part isn't ready.
AdvanceClock = Callable[[bytes, float, Goal], Sequence["Future[bool]"]]
# A job to which no rows come gets its next heartbeat after this many ordinary intervals, since each heartbeat writes
# some records to topics, which keep them.
IDLE_FACTOR = 3
# If a marker hasn't arrived after this many seconds, another one follows. Markers aren't lost, but a job that is
# started again may pass over one. Without `RESEND_S`, the next marker would be written only after the job's next
# checkpoint.
RESEND_S = 30.0
# The beginnings of the names of the parts that a heartbeat may be waiting for.
INDEX, JOB, SENDER = "the index", "the job of", "the index that sends the rows of"
# The most marks of a job that are awaited at the same time.
ATTEMPTS = 2


class Ports(Protocol):
    """The broker, as heartbeats need it."""

    def ends(self, topics: Collection[str]) -> Offsets:
        """Return the ends of topics. Raises `UnavailableError` if the broker doesn't answer."""
        ...

    def send(self, topic: str, token: bytes, partitions: Collection[int]) -> "Future[None]":
        """Write a marker to these partitions of a topic, and return at once."""
        ...


@dataclass(frozen=True, slots=True)
class Mark:
    """All rows that were accepted before a time are before a position.

    Attributes:
        at: The time, by the clock of the heartbeats.
        rows_at: The time of the newest mark at which rows had come since the one before.
        goal: The position.
        since: The time at which the heartbeat should have begun: earlier than `at` if the broker was away then, since
            rows may have been accepted right after the heartbeat before.
    """

    at: float
    rows_at: float
    goal: Goal
    since: float


@dataclass(slots=True)
class _Topic:
    """A topic's newest mark and, if a marker was written behind it, its token.

    For a topic of sources, `end` is where it ended at the last heartbeat, and `own` how many markers heartbeats have
    written to each partition since.
    """

    mark: Mark | None = None
    token: bytes = b""
    sent: "Future[None] | None" = None
    end: Goal | None = None
    own: int = 0


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A mark that a job works on: the goals of its inputs, and the tokens of the markers behind them."""

    at: float
    rows_at: float
    since: float
    goals: Mapping[str, Goal]
    begun: float
    tokens: Mapping[str, bytes]
    sent: tuple["Future[None]", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """A job or index that a heartbeat has passed.

    Attributes:
        part: The part, for people.
        topics: The topics that it reads.
        at: The time of the heartbeat: rows accepted before it have passed the part.
        begun: The time at which the heartbeat came to the part.
        ended: The time at which it was seen to have passed.
    """

    part: str
    topics: frozenset[str]
    at: float
    begun: float
    ended: float


@dataclass(slots=True)
class _Job:
    plan: JobPlan
    taken_at: float = LONG_AGO
    # True if a marker couldn't be written. The next mark is then taken even if no rows have come.
    again: bool = False
    # The time since which the oldest mark that the job has taken but not reached has been under way; None if there is
    # no such mark.
    since: float | None = None
    # While the job works on a mark, newer marks may come and wait, and later the job skips to the newest of them. Here
    # is the time since which the oldest waiting mark has been under way; None if no mark waits. The delay of the newest
    # mark is counted from this time, so that the delay of the skipped marks isn't lost.
    skipped: float | None = None
    attempts: list[_Attempt] = field(default_factory=list)


@dataclass(slots=True)
class _Index:
    """How far an index is with heartbeats.

    Attributes:
        plan: The index.
        mark: The mark that it is to reach next; None if it has reached all that came.
        skipped: The time since which the oldest mark has been under way that came meanwhile and will be skipped.
        begun: The time since which it works on `mark`.
        closing: The outcomes of closing its windows by the clock up to the mark, of those that close so; None before.
        done_at: The time of the last mark that it has reached.
        delay: How long that one took, in seconds; None before the first.
    """

    plan: IndexPlan
    mark: Mark | None = None
    skipped: float | None = None
    begun: float = 0.0
    closing: "Sequence[Future[bool]] | None" = None
    done_at: float = LONG_AGO
    delay: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The freshness of an index.

    Attributes:
        asset: The hexadecimal name of the index.
        dataset: The dataset that it serves.
        delay: The seconds from the last heartbeat that it has reached until it was readable; None before the first.
        done_at: All rows accepted before this time are readable; minus infinity before the first heartbeat.
        since: The time of the oldest heartbeat that isn't readable; None if there is none.
        waits_for: The part at which that heartbeat is, for people; empty if there is none.
    """

    asset: str
    dataset: str
    delay: float | None
    done_at: float
    since: float | None
    waits_for: str


class Heartbeats:
    """The heartbeats along some plans. Not thread safe."""

    def __init__(
        self,
        ports: Ports,
        arrivals: Arrivals,
        interval_s: float,
        served: Callable[[str, float], object],
        passed: Callable[["Passed"], object] = lambda _: None,
        *,
        advance_clock: AdvanceClock = lambda _asset, _at, _goal: (),
    ) -> None:
        """Prepare.

        Args:
            ports: The broker.
            arrivals: The arrivals of markers, which others fill.
            interval_s: The seconds between two heartbeats.
            served: Called with the dataset and the delay in seconds when an index has reached a heartbeat.
            passed: Called when a heartbeat has passed a job or an index.
            advance_clock: Closes the windows of an index by the clock.
        """
        self._ports = ports
        self._arrivals = arrivals
        self._interval_s = interval_s
        self._passed = passed
        self._advance_clock = advance_clock
        self._served = served
        self._jobs: dict[str, _Job] = {}
        self._indexes: dict[str, _Index] = {}
        self._topics: dict[str, _Topic] = {}
        self._sources: frozenset[str] = frozenset()
        self._job_of: Mapping[str, _Job] = {}
        self._emits: Mapping[str, _Index] = {}
        # The time since which the ends of the source topics couldn't be read, and the reason.
        self._failing: tuple[float, str] | None = None
        # The output topics of jobs that no index here reads, with their ends at the last heartbeat.
        self._outputs: Offsets = {}
        # By the topic that a job or an index writes: the mark that the job or index has reached, without a position.
        # All that follows from rows before the mark is on the topic now, so the topic's end becomes the position of the
        # mark as soon as the broker returns it.
        self._ended: dict[str, tuple[float, float, float]] = {}

    def follow(self, plans: Iterable[GraphPlan]) -> None:
        """Measure the datasets of these plans, and no others; what is known of those that stay is kept."""
        plans = list(plans)
        jobs = {job.job_id: job for plan in plans for job in plan.jobs}
        indexes = {index.asset.hex(): index for plan in plans for index in plan.indexes}
        self._jobs = {name: self._jobs.get(name) or _Job(job) for name, job in jobs.items()}
        self._indexes = {name: self._indexes.get(name) or _Index(index) for name, index in indexes.items()}
        self._job_of = {job.plan.output.name: job for job in self._jobs.values()}
        self._emits = {index.plan.emits.name: index for index in self._indexes.values() if index.plan.emits is not None}
        read = {topic.name for job in jobs.values() for topic in job.inputs} | {i.topic for i in indexes.values()}
        self._sources = frozenset(read - self._job_of.keys() - self._emits.keys())
        self._topics = {name: self._topics.get(name) or _Topic() for name in read | self._job_of.keys()}

    def behind(self, topics: Collection[str]) -> tuple[frozenset[str], int]:
        """Return some topics with all that are computed from them, and how many jobs and indexes read these."""
        found, new = set[str](), set(topics)
        while new:
            found |= new
            jobs = [job.plan for job in self._jobs.values() if any(topic.name in new for topic in job.plan.inputs)]
            sent = [
                index.plan.emits.name for index in self._emits.values() if index.plan.topic in new and index.plan.emits
            ]
            new = {*(job.output.name for job in jobs), *sent} - found
        reads = sum(any(topic.name in found for topic in job.plan.inputs) for job in self._jobs.values())
        return frozenset(found), reads + sum(index.plan.topic in found for index in self._indexes.values())

    @property
    def unread_outputs(self) -> Mapping[str, Goal]:
        """The outputs at which markers are awaited and that no index here reads, with offsets from which to read."""
        return {
            topic: goal
            for topic, goal in self._outputs.items()
            if (job := self._job_of.get(topic)) is not None and any(attempt.tokens for attempt in job.attempts)
        }

    @property
    def under_way(self) -> bool:
        """True if a heartbeat isn't readable everywhere yet."""
        return any(job.attempts for job in self._jobs.values()) or any(i.mark for i in self._indexes.values())

    @property
    def needs_reports(self) -> bool:
        """True if a job is awaited, whose engine may report that it has processed what it was to."""
        return any(job.attempts for job in self._jobs.values())

    def begin(self, now: float, followed: Collection[str]) -> None:
        """Begin a heartbeat: a mark on each topic of sources.

        Args:
            now: The time.
            followed: The topics that indexes of this server read as a whole.

        Raises `UnavailableError` if the broker doesn't answer. Until it does, all datasets wait for it.
        """
        unread = self._job_of.keys() - set(followed)
        try:
            found = self._ports.ends(self._sources | unread)
        except Exception as error:
            self._failing = self._failing or (now, str(error))
            raise
        since = now if self._failing is None else self._failing[0]
        self._failing = None
        self._outputs = {topic: found[topic] for topic in unread if topic in found}
        for name in self._sources & found.keys():
            topic, end = self._topics[name], found[name]
            before = topic.end
            rows = before is None or any(offset > before.get(p, 0) + topic.own for p, offset in end.items())
            rows_at = now if rows or topic.mark is None else topic.mark.rows_at
            self._topics[name] = _Topic(mark=Mark(now, rows_at, end, since), end=end)

    def advance(
        self, now: Callable[[], float], statuses: Sequence[IndexStatus], reports: Collection[JobRecord], *, whole: bool
    ) -> None:
        """Move heartbeats on as far as they get now.

        Args:
            now: Returns the time.
            statuses: How far each index is.
            reports: The engines' reports on jobs.
            whole: False if the indexes are shards, which read only some partitions of their topics.

        Raises `UnavailableError` if the broker doesn't answer.
        """
        found = {status.asset: status for status in statuses}
        records = {record.job_id: record for record in reports}
        partitions = {status.topic: len(status.offsets) for status in statuses} if whole else {}
        for index in self._indexes.values():
            if index.plan.asset.hex() not in found:
                index.mark = index.closing = None
        while True:
            ended = self._ended
            moved = False
            for job in self._jobs.values():
                moved |= self._finish(job, records.get(job.plan.job_id), partitions, ended, now())
                self._take(job, now())
            for index in self._emits.values():
                self._take_mark(index, found, now())
                status = found.get(index.plan.asset.hex())
                if index.mark is not None and self._has_passed(index, index.mark, status, whole=whole):
                    index.done_at = index.mark.at
                    self._note(SENDER, index, now())
                    assert index.plan.emits is not None  # noqa: S101 (by the choice of `_emits`)
                    ended[index.plan.emits.name] = (index.mark.at, index.mark.rows_at, index.mark.since)
                    index.mark = None
            if ended:
                ends = self._ports.ends(ended.keys())
                for topic, (at, rows_at, since) in ended.items():
                    if topic in ends and topic in self._topics:
                        self._topics[topic] = _Topic(Mark(at, rows_at, ends[topic], since))
                ended.clear()
            elif not moved:
                break
        for index in self._indexes.values():
            if index.plan.emits is None:
                self._serve(index, found, now, whole=whole)
        self._arrivals.keep(
            {token for job in self._jobs.values() for attempt in job.attempts for token in attempt.tokens.values()}
            | {topic.token for topic in self._topics.values()}
        )

    def report(self, statuses: Iterable[IndexStatus]) -> list[Served]:
        """Return the freshness of the indexes that this server fills, as far as it can know it."""
        here = {status.asset for status in statuses}
        known: dict[str, bool] = {}
        waits: dict[str, tuple[float, str] | None] = {}
        return [
            self._state(asset, index, waits)
            for asset, index in self._indexes.items()
            if index.plan.emits is None and asset in here and self._is_known(index.plan.topic, here, known)
        ]

    def _serve(self, index: _Index, found: Mapping[str, IndexStatus], now: Callable[[], float], *, whole: bool) -> None:
        self._take_mark(index, found, now())
        status = found.get(index.plan.asset.hex())
        if index.mark is None or not self._has_passed(index, index.mark, status, whole=whole):
            return
        index.done_at, index.mark = index.mark.at, None
        self._note("the index of", index, now())
        index.delay = max(0.0, now() - index.done_at)
        self._served(index.plan.dataset, index.delay)

    def _has_passed(self, index: _Index, mark: Mark, status: IndexStatus | None, *, whole: bool) -> bool:
        """Return whether an index has reached a mark, and closed the windows that it closes by the clock up to it.

        The rows of these windows are on their topic then, so that they are before the mark of that topic.
        """
        if not _reached(status, mark.goal, whole=whole):
            return False
        if not index.plan.by_clock:
            return True
        if index.closing is None:
            index.closing = self._advance_clock(index.plan.asset, mark.at, mark.goal)
        if not all(part.done() for part in index.closing):
            return False
        closed = all(part.exception() is None and part.result() for part in index.closing)
        index.closing = None
        return closed

    def _note(self, kind: str, index: _Index, now: float) -> None:
        name = f"{kind} {index.plan.dataset.removesuffix('/rows')}"
        read = frozenset({index.plan.topic})
        self._passed(Passed(part=name, topics=read, at=index.done_at, begun=index.begun, ended=now))

    def _take_mark(self, index: _Index, found: Mapping[str, IndexStatus], now: float) -> None:
        """Have an index that is free, and that this server fills, work on the newest mark of its topic."""
        mark = self._topics[index.plan.topic].mark
        if mark is None or index.plan.asset.hex() not in found:
            return
        if index.mark is None and mark.at > index.done_at:
            since = mark.since if index.skipped is None else min(mark.since, index.skipped)
            index.mark, index.begun, index.skipped = replace(mark, since=since), now, None
        elif index.mark is not None and mark.at > index.mark.at and index.skipped is None:
            index.skipped = mark.since

    def _take(self, job: _Job, now: float) -> None:
        """Have a job work on the newest marks of its inputs, if it is free, or has been at one for long."""
        marks = {topic.name: self._topics[topic.name].mark for topic in job.plan.inputs}
        known = {name: mark for name, mark in marks.items() if mark is not None}
        if len(known) < len(marks) or not known:
            return
        at = min(mark.at for mark in known.values())
        rows_at = max(mark.rows_at for mark in known.values())
        due = job.again or rows_at > job.taken_at or at - job.taken_at >= IDLE_FACTOR * self._interval_s
        if at <= job.taken_at or not due:
            return
        since = min(mark.since for mark in known.values())
        if job.attempts and now - job.attempts[-1].at < RESEND_S:
            job.skipped = since if job.skipped is None else job.skipped
            return
        if job.skipped is not None:
            since, job.skipped = min(since, job.skipped), None
        tokens: dict[str, bytes] = {}
        sent: list[Future[None]] = []
        if job.plan.mode is JobMode.REAL_TIME:
            for name in known:
                topic = self._topics[name]
                sent.append(self._marked(name, topic))
                tokens[name] = topic.token
        goals = {name: mark.goal for name, mark in known.items()}
        # At most `ATTEMPTS` marks are awaited. The oldest one stays, since its markers may still arrive. The newest one
        # is replaced.
        del job.attempts[ATTEMPTS - 1 :]
        job.attempts.append(_Attempt(at, rows_at, since, goals, now, tokens, tuple(sent)))
        job.taken_at, job.again = at, False
        if job.since is None:
            job.since = since

    def _marked(self, name: str, topic: _Topic) -> "Future[None]":
        """Write a marker behind the mark of a topic, unless there is one."""
        if topic.sent is None:
            assert topic.mark is not None  # noqa: S101 (callers ask for topics with a mark)
            topic.token = secrets.token_bytes(TOKEN_BYTES)
            topic.own += 1
            self._arrivals.expect(topic.token)
            topic.sent = self._ports.send(name, topic.token, topic.mark.goal.keys())
        return topic.sent

    def _finish(
        self,
        job: _Job,
        record: JobRecord | None,
        partitions: Mapping[str, int],
        ended: dict[str, tuple[float, float, float]],
        now: float,
    ) -> bool:
        """Note the newest mark at which a job has arrived; return whether its output has a new mark."""
        lost = [attempt for attempt in job.attempts if any(_has_failed(sent) for sent in attempt.sent)]
        if lost:
            job.attempts = [attempt for attempt in job.attempts if attempt not in lost]
            job.again = True
        output = job.plan.output.name
        for attempt in reversed(job.attempts):
            goal = self._arrived(job.plan, attempt, partitions.get(output) or len(self._outputs.get(output, {})))
            if goal is not None:
                self._topics[output] = _Topic(Mark(attempt.at, attempt.rows_at, goal, attempt.since))
            elif has_committed(job.plan, record, attempt.goals):
                ended[output] = (attempt.at, attempt.rows_at, attempt.since)
            else:
                continue
            read = frozenset(attempt.goals)
            name = f"{JOB} {job.plan.dataset}"
            self._passed(Passed(part=name, topics=read, at=attempt.at, begun=attempt.begun, ended=now))
            job.attempts = [later for later in job.attempts if later.at > attempt.at]
            job.since = job.attempts[0].since if job.attempts else None
            return goal is not None
        return False

    def _arrived(self, plan: JobPlan, attempt: _Attempt, partitions: int) -> Goal | None:
        if not attempt.tokens:
            return None
        found: dict[int, int] = {}
        for name, token in attempt.tokens.items():
            goal = self._arrivals.goal(token, job_tag(plan.job_id), len(attempt.goals[name]), partitions)
            if goal is None:
                return None
            for partition, offset in goal.items():
                found[partition] = max(offset, found.get(partition, 0))
        return found

    def _is_known(self, topic: str, here: Collection[str], known: dict[str, bool]) -> bool:
        """Return whether this server can measure a topic: it has all indexes that write rows to topics before it.

        The answers for topics are kept in `known`, since many datasets may come from one topic.
        """
        found = known.get(topic)
        if found is None:
            found = True
            if (job := self._job_of.get(topic)) is not None:
                found = all(self._is_known(read.name, here, known) for read in job.plan.inputs)
            elif (index := self._emits.get(topic)) is not None:
                found = index.plan.asset.hex() in here and self._is_known(index.plan.topic, here, known)
            known[topic] = found
        return found

    def _state(self, asset: str, index: _Index, waits: dict[str, tuple[float, str] | None]) -> Served:
        mark = None if index.mark is None else (index.mark.since, INDEX)
        first = _first(self._wait(index.plan.topic, waits), mark)
        since, waits_for = (None, "") if first is None else first
        return Served(
            asset=asset,
            dataset=index.plan.dataset,
            delay=index.delay,
            done_at=index.done_at,
            since=since,
            waits_for=waits_for,
        )

    def _wait(self, topic: str, waits: dict[str, tuple[float, str] | None]) -> tuple[float, str] | None:
        """Return the oldest heartbeat that is before the end of a topic: its time, and the part at which it is.

        The answers for topics are kept in `waits`.
        """
        if topic in waits:
            return waits[topic]
        found = None
        if topic in self._ended:
            found = (self._ended[topic][2], "Kafka: the end of a topic isn't known yet")
        if (job := self._job_of.get(topic)) is not None:
            if job.since is not None:
                found = _first((job.since, f"{JOB} {job.plan.dataset}"), found)
            for read in job.plan.inputs:
                found = _first(self._wait(read.name, waits), found)
        elif (index := self._emits.get(topic)) is not None:
            if index.mark is not None:
                found = _first((index.mark.since, f"{SENDER} {index.plan.dataset.removesuffix('/rows')}"), found)
            found = _first(self._wait(index.plan.topic, waits), found)
        elif self._failing is not None:
            found = (self._failing[0], f"Kafka: {self._failing[1]}")
        waits[topic] = found
        return found


def _first(one: tuple[float, str] | None, other: tuple[float, str] | None) -> tuple[float, str] | None:
    """Return the earlier of two waits; if they began with the same heartbeat, the one of the earlier part, `one`."""
    if one is None or other is None:
        return one or other
    return one if one[0] <= other[0] else other


def explain(waits_for: str, dataset: str, jobs: Iterable[JobRecord]) -> str:
    """Return for what a dataset waits, with the state of the job if it is one that doesn't run."""
    if waits_for == INDEX:
        return f"the index of {dataset}"
    for job in jobs:
        if waits_for == f"{JOB} {job.dataset}" and job.desired is DesiredState.RUNNING:
            if job.shown_state == JobState.RUNNING:
                return f"{waits_for}; its engine may have ended, or it has much to do"
            return f"{waits_for}, which is {job.shown_state}" + (f": {job.error}" if job.error else "")
    return waits_for


def _reached(status: IndexStatus | None, goal: Goal, *, whole: bool) -> bool:
    if status is None:
        return False
    if not status.offsets:
        return not any(goal.values())
    offsets = status.offsets
    return all(offsets.get(p, 0) >= offset for p, offset in goal.items() if whole or p in offsets)


def _has_failed(sent: "Future[None]") -> bool:
    return sent.done() and sent.exception() is not None
