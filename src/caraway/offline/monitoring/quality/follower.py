"""The reader of topics whose rows are checked."""

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import structlog
from confluent_kafka import KafkaException

from caraway.dataplane.topics.erased_keys import HidesRecord
from caraway.dataplane.topics.local_state import remove
from caraway.dataplane.topics.positions import TopicEnds
from caraway.dataplane.topics.reader import LOST_OFFSET, UNHURRIED, Message, Past, Reading, TopicReader
from caraway.dataplane.topics.truncation import Reached, continuation
from caraway.errors import UnavailableError
from caraway.graph.plan.model import CheckPlan, TopicPlan
from caraway.offline.monitoring.quality.counting import Counting
from caraway.offline.monitoring.quality.store import QualityStore

LOG = structlog.get_logger(__name__)

READING = Reading(UNHURRIED, batch=10_000)
POLL_SECONDS = 0.5
RETRY_SECONDS = 2.0
# The folder of the records that were seen, in the server's data folder.
FOLDER = "quality"

GOES_BACK = (
    "The watch goes on from there; what it has counted of the lost records stays in the counts, and their rows in the "
    "profiles"
)

# A function that returns, for a check of expectations, the test whether a record is of an erased key; None if no key is
# erased.
HidesOf = Callable[[CheckPlan], HidesRecord | None]


class QualityFollower:
    """Counts and profiles the rows of the checks that it is given. Only one thread may use it."""

    def __init__(
        self,
        bootstrap_servers: str,
        store: QualityStore,
        *,
        folder: Path,
        seconds: float,
        kept_s: float,
        profiles_s: float = math.inf,
        hides: HidesOf = lambda _: None,
        past: Callable[[TopicPlan], Past] | None = None,
        note_loss: Callable[[CheckPlan, str], object] = lambda *_: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare; nothing is read before `step`.

        Args:
            bootstrap_servers: The broker, "host:port".
            store: The counts.
            folder: A folder for the records that were seen.
            seconds: Seconds after which a count is recorded.
            kept_s: The age in seconds, before the newest row of a dataset, of the windows that are kept.
            profiles_s: The age in seconds, before the newest row of a dataset, of the hours whose profiles are kept.
            hides: Returns which records are erased.
            past: Returns the archived messages of a topic; None: only what the broker has is read.
            note_loss: Called with a check and a text for the operator if a topic lacks records that were counted.
            clock: Returns the time in seconds since the epoch.
        """
        self._note_loss = note_loss
        self._bootstrap_servers = bootstrap_servers
        self._store = store
        self._folder = folder / FOLDER
        self._seconds = seconds
        self._kept_s = kept_s
        self._profiles_s = profiles_s
        self._hides = hides
        self._past = past
        self._clock = clock
        self._reader = TopicReader(bootstrap_servers, READING)
        self._wanted: dict[str, CheckPlan] = {}
        self._counting: dict[str, Counting] = {}
        self._retry_at: dict[str, float] = {}
        # Topics, with all their partitions, of which only messages that were counted before are read for now. Their
        # records are entered in the file of seen records. Without this, a record that comes again on another partition
        # might be counted twice.
        self._noting: dict[str, list[int]] = {}
        self._recorded_at = clock()

    def follow(self, checks: Mapping[str, CheckPlan]) -> None:
        """Count the rows of these checks from now on, which are named by `CheckPlan.check_id`."""
        for check_id in [check_id for check_id in self._counting if check_id not in checks]:
            self._leave(self._counting[check_id].plan.topic.name)
        self._wanted = dict(checks)
        self._retry_at.clear()
        used = {self._state(check_id) for check_id in checks}
        for path in self._folder.glob("*.db") if self._folder.is_dir() else ():
            if path not in used:
                remove(path)

    def step(self) -> list[str]:
        """Read and count what there is, for some tenths of a second at most; return the checks that were recorded.

        Raises `UnavailableError` if the broker or Postgres doesn't answer.
        """
        self._join()
        if not self._counting:
            time.sleep(POLL_SECONDS)
            return []
        try:
            taken = self._reader.read(POLL_SECONDS)
        except KafkaException as error:
            raise UnavailableError(f"Kafka doesn't answer ({error})") from error
        for topic, reason in taken.waiting.items():
            LOG.warning("rows of a topic can't be checked for now", topic=topic, reason=reason)
            self._leave(topic)
        for lost, problem in taken.errors:
            if problem.code() in LOST_OFFSET and lost is not None:
                # The topic has lost its last messages, or its first ones were removed. After a pause `_join` starts
                # reading it again, and `_intact` finds out which messages are still there.
                LOG.warning("a topic is checked from what was recorded", topic=lost, reason=problem.str())
                self._leave(lost)
        now = datetime.fromtimestamp(self._clock(), UTC)
        for topic, messages in taken.messages.items():
            for counting in self._of(topic):
                new = _recorded(messages, counting) if topic in self._noting else messages
                counting.take(new, now, self._hides(counting.plan) if counting.plan.profiled else None)
        self._end_noting()
        return self._record()

    def flush(self) -> list[str]:
        """Record all that was counted, and return the checks of which something was."""
        return self._record(at_once=True)

    def close(self) -> None:
        """Close the connection and the files; what isn't recorded will be counted again."""
        for counting in self._all():
            counting.close()
        self._reader.close()

    def _record(self, *, at_once: bool = False) -> list[str]:
        now = self._clock()
        # If the clock was set back, the difference is negative, and the counts are recorded at once.
        due = at_once or not 0 <= now - self._recorded_at < self._seconds
        if due:
            self._recorded_at = now
        recorded = []
        for check_id, counting in list(self._counting.items()):
            if not counting.has_news or not (due or counting.is_full):
                continue
            newest, at = self._store.newest(check_id), datetime.fromtimestamp(now, UTC)
            found = counting.findings(newest, at, self._kept_s, self._hides(counting.plan))
            found = replace(found, epochs=self._epochs(counting.plan.topic.name, found.until))
            if self._store.add(found):
                counting.record(found)
                recorded.append(check_id)
            else:
                LOG.warning("another process has counted the same rows", check=check_id)
                self._leave(counting.plan.topic.name)
        return recorded

    def _join(self) -> None:
        """Begin with wanted checks whose topics exist by now."""
        now = self._clock()
        missing = [plan for check_id, plan in self._wanted.items() if check_id not in self._counting]
        topics = {plan.topic.name: plan for plan in missing if self._retry_at.get(plan.topic.name, 0.0) <= now}
        if not topics:
            return
        try:
            known = self._reader.topics()
        except KafkaException as error:
            raise UnavailableError(f"Kafka doesn't answer ({error})") from error
        for name, plan in topics.items():
            found = known.get(name)
            if found is None or found.error is not None or not found.partitions:
                self._retry_at[name] = now + RETRY_SECONDS
                continue
            self._begin(plan.topic, sorted(found.partitions))

    def _begin(self, topic: TopicPlan, partitions: list[int]) -> None:
        """Read a topic from where all of its checks have its messages."""
        self._leave(topic.name)
        for check_id, plan in self._wanted.items():
            if plan.topic.name == topic.name:
                state = self._state(check_id)
                positions = self._intact(plan, state, partitions)
                self._counting[check_id] = Counting(plan, positions, state, profiles_s=self._profiles_s)
        behind = [p for p in partitions if any(_is_behind(counting, p) for counting in self._of(topic.name))]
        if behind:
            self._noting[topic.name] = partitions
        self._start(topic, behind or partitions)

    def _start(self, topic: TopicPlan, partitions: list[int]) -> None:
        own = self._of(topic.name)
        start = {p: min(counting.positions.get(p, 0) for counting in own) for p in partitions}
        past = None if self._past is None else self._past(topic)
        if past is None:
            beginnings = TopicEnds(self._bootstrap_servers).beginnings([topic.name]).get(topic.name, {})
            start = {p: max(offset, beginnings.get(p, 0)) for p, offset in start.items()}
        self._reader.start(topic.name, start, past)

    def _end_noting(self) -> None:
        """Read topics whole of which all counted messages are noted."""
        for name, partitions in list(self._noting.items()):
            positions, own = self._reader.positions(name) or {}, self._of(name)
            is_noted = all(offset >= c.recorded.get(p, 0) for p, offset in positions.items() for c in own)
            # If the topic has lost its last records, the recorded offsets are never reached. Then it is enough to have
            # read the topic to its end.
            if own and (is_noted or self._reader.lag(name) == 0):
                del self._noting[name]
                self._start(own[0].plan.topic, partitions)

    def _leave(self, topic: str) -> None:
        """Stop reading a topic, without what isn't recorded; it is read again after a pause."""
        self._reader.stop(topic)
        self._noting.pop(topic, None)
        self._retry_at[topic] = self._clock() + RETRY_SECONDS
        for counting in self._of(topic):
            counting.close()
            del self._counting[counting.plan.check_id]

    def _intact(self, plan: CheckPlan, state: Path, partitions: Sequence[int]) -> dict[int, int]:
        """Return the positions up to which a check has counted what the topic has; they go back behind a loss."""
        check_id, topic = plan.check_id, plan.topic.name
        positions = self._store.positions(check_id)
        known = {p: at for p, at in positions.items() if p in partitions}
        if not known:
            return positions
        found = continuation(self._bootstrap_servers, topic, Reached(known, self._store.epochs(check_id)))
        if not found.lost:
            return positions
        told = found.told(f"the check of {plan.dataset.name}", GOES_BACK)
        LOG.error(told)
        self._note_loss(plan, told)
        # The file of seen records contains records that the topic has lost. If such a record comes again, it must count
        # as new, so the file is made again from the topic.
        remove(state)
        self._store.go_back(check_id, found.lost)
        return {**positions, **found.offsets}

    def _epochs(self, topic: str, until: Mapping[int, int]) -> dict[int, int]:
        """Return epochs in which a topic had all messages before some offsets."""
        read = self._reader.positions(topic) or {}
        return {p: e for p, e in self._reader.epochs(topic).items() if read.get(p, 0) >= until.get(p, 0)}

    def _of(self, topic: str) -> list[Counting]:
        return [counting for counting in self._all() if counting.plan.topic.name == topic]

    def _all(self) -> list[Counting]:
        return list(self._counting.values())

    def _state(self, check_id: str) -> Path:
        return self._folder / f"{hashlib.sha256(check_id.encode()).hexdigest()[:32]}.db"


def _is_behind(counting: Counting, partition: int) -> bool:
    """Return whether messages of a partition were counted that a check hasn't noted as seen."""
    return counting.repeats_anywhere and counting.positions.get(partition, 0) < counting.recorded.get(partition, 0)


def _recorded(messages: Sequence[Message], counting: Counting) -> list[Message]:
    """Return the messages that a check has counted."""
    return [message for message in messages if message[3] < counting.recorded.get(message[2], 0)]
