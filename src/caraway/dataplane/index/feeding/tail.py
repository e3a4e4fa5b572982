"""The thread that reads topics and applies their records to indexes."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from caraway.dataplane.index.feeding.consumption import BEHIND, CAUGHT_UP, FRESH
from caraway.dataplane.index.feeding.emission import Emission, Send
from caraway.dataplane.index.feeding.emission_writer import EmissionWriter, NotOursError
from caraway.dataplane.index.feeding.ingestion_order import by_ingestion
from caraway.dataplane.index.feeding.recovery import recover
from caraway.dataplane.index.feeding.writer import IndexWriter, NoteArrivals, singles_of
from caraway.dataplane.index.records.closing_time import advance_clock_time
from caraway.dataplane.index.records.delivery import Applied
from caraway.dataplane.index.storage.database import DamagedError
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.blocks import is_block, records_in
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.left_out import LeaveOut, LeftOut, log_left_out
from caraway.dataplane.topics.reader import LOST_OFFSET, Message, Past, Reading, TopicReader
from caraway.dataplane.topics.truncation import Position, check
from caraway.errors import InvalidInputError, UnavailableError
from caraway.graph.plan.model import IndexPlan
from caraway.process.thread_names import show_name
from caraway.state.losses import Loss

LOGGER = logging.getLogger(__name__)

# The seconds for which a poll waits for a record. A command, such as a change of plans, is executed between two polls,
# so it may wait as long.
POLL_S = 0.1
# The seconds before another attempt if a topic doesn't exist yet, a broker doesn't answer, or the disk of the database
# is full.
RETRY_S = 0.5
# If memory runs out while a record is applied, the record is tried this many times, `RETRY_S` apart, before it is left
# out: the cause isn't the record, and other work may soon release memory.
ATTEMPTS_WITHOUT_MEMORY = 20
# The average number of records in a message is taken over about this many of the last messages.
AVERAGED_MESSAGES = 200

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Subscription:
    """An index with its progress on its topic: the next offset of each partition.

    `records_per_message` is the average number of records in the last messages. `unsent` is true while rows of
    aggregates for jobs may wait in the database: since an earlier process, because this server may not write them, or
    because a new database hasn't reached the former end of its topic. `checked` is true once the index is known not to
    be ahead of its topic. `held` is None while a tail reads for it; otherwise it has the ends that the topic had when
    the index was taken out of the tails, to be loaded from tables.
    """

    plan: IndexPlan
    next: dict[int, int] = field(default_factory=dict)
    written: int = 0
    unchanged: int = 0
    refused: int = 0
    newest_ingested_us: int = 0
    emitted: int = 0
    records_per_message: float = 1.0
    unsent: bool = field(init=False)
    checked: bool = False
    held: Mapping[int, int] | None = None

    def __post_init__(self) -> None:
        self.unsent = self.plan.emits is not None

    def note_blocks(self, messages: int, applied: Applied) -> None:
        """Update the average number of records in a message by the outcome of `messages`."""
        found = (applied.written + applied.unchanged + applied.refused) / messages
        share = min(1.0, messages / AVERAGED_MESSAGES)
        self.records_per_message = max(1.0, self.records_per_message + share * (found - self.records_per_message))

    def estimated(self, messages: int) -> int:
        """Return about how many records are in `messages` that wait: 0 in none, and at least 1 in each."""
        return round(messages * self.records_per_message)

    def count(self, applied: Applied) -> None:
        """Add the outcome of a batch."""
        self.written += applied.written
        self.unchanged += applied.unchanged
        self.refused += applied.refused
        self.newest_ingested_us = max(self.newest_ingested_us, applied.newest_ingested_us)


def every_partition(partition: int) -> bool:
    """Return True: without a division of the index every partition is read."""
    del partition
    return True


PastOf = Callable[[IndexPlan], Past]


class _NoPast:
    """The past of a topic that isn't archived."""

    def read(self, positions: Mapping[int, int], records: int) -> tuple[list[Message], Mapping[int, int]]:
        del records
        return [], positions


def without_past(plan: IndexPlan) -> Past:
    """Return nothing that the broker doesn't have."""
    del plan
    return _NoPast()


class Tail:
    """A reader of topics, which applies their records to indexes. Its own thread makes all changes, between batches.

    `when_caught_up` is called with a subscription after a batch if hardly any records of its topic wait; if it returns
    True, another tail has taken the subscription over, and this one drops it. `when_behind` is called with a
    subscription that this tail doesn't read for any longer: a new one that needs records which were read already for
    other indexes, or one whose topic has a backlog. A tail without it goes back to the earlier offsets, and processes
    backlogs itself. `reading` are the consumer's settings, and `holds` returns whether a partition is read. `past_of`
    returns the messages of an index's topic that the broker may not have any more. `note_arrivals` is called with the
    arrivals of markers that are read, `leave_out` with records that can't be applied, and `note_loss` with each topic
    that lacks records which an index has read.
    """

    def __init__(
        self,
        name: str,
        bootstrap_servers: str,
        store: IndexStore,
        emission_writer: EmissionWriter,
        *,
        when_caught_up: Callable[[Subscription], bool] | None = None,
        when_behind: Callable[[Subscription], object] | None = None,
        reading: Reading = FRESH,
        erased: ErasedKeys | None = None,
        holds: Callable[[int], bool] = every_partition,
        past_of: PastOf = without_past,
        note_arrivals: NoteArrivals | None = None,
        leave_out: LeaveOut = log_left_out,
        note_loss: Callable[[Loss], object] = lambda _: None,
    ) -> None:
        self._name = name
        self._holds = holds
        self._past_of = past_of
        self._bootstrap_servers = bootstrap_servers
        self._store = store
        # The reader has one position for each topic, which all indexes of the topic share. An index that starts at
        # earlier offsets than this position has missed records, so `_join` leaves it to `when_behind`, or moves the
        # position back.
        self._reader = TopicReader(bootstrap_servers, reading)
        self._note_loss = note_loss
        self._writer = IndexWriter(
            store, erased=erased, note_arrivals=note_arrivals, leave_out=leave_out, epochs=self._reader.epochs
        )
        self._send: Send = emission_writer.send
        self._emissions: dict[bytes, Emission] = {}
        self._when_caught_up = when_caught_up
        self._when_behind = when_behind
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._waiting: list[Subscription] = []
        self._retry_at = 0.0
        # The last reason why each topic couldn't be read. A reason is logged only when it changes.
        self._reasons: dict[str, str] = {}
        self._topics: dict[str, list[Subscription]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"index-{name}", daemon=True)
        self.failure: Exception | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """Have the thread stop after the current batch, and return at once."""
        self._stopping.set()
        self._commands.put(lambda: None)

    def stop(self, timeout_s: float) -> None:
        """Stop after the current batch, and wait for that."""
        self.end()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def do(self, command: Callable[[], T]) -> "Future[T]":
        """Have the tail's thread execute `command` between two batches; return the future of its result."""
        outcome: Future[T] = Future()

        def execute() -> None:
            try:
                outcome.set_result(command())
            except Exception as error:
                LOGGER.exception("a change of what is indexed failed (%s)", self._name)
                outcome.set_exception(error)

        self._commands.put(execute)
        return outcome

    def add(self, subscription: Subscription) -> bool:
        """Read for a subscription as soon as its topic exists. Only the tail's thread may call this."""
        self._waiting.append(subscription)
        self._retry_at = 0.0
        return True

    def adopt(self, subscription: Subscription) -> bool:
        """Take over another tail's subscription, unless records that it needs were read here already.

        Only the tail's thread may call this.
        """
        self._emissions.pop(subscription.plan.asset, None)
        positions = self._reader.positions(subscription.plan.topic)
        if positions is None:
            return self.add(subscription)
        if any(subscription.next.get(p, 0) < offset for p, offset in positions.items()):
            return False
        self._writer.take_over()
        self._topics[subscription.plan.topic].append(subscription)
        return True

    def discard(self) -> None:
        """Drop decoded tiles, as the database was changed by others. Only the tail's thread may call this."""
        self._writer.take_over()

    def remove(self, assets: frozenset[bytes]) -> bool:
        """Stop reading for some indexes. Only the tail's thread may call this."""
        self._waiting = [s for s in self._waiting if s.plan.asset not in assets]
        for topic, subscriptions in list(self._topics.items()):
            left = [s for s in subscriptions if s.plan.asset not in assets]
            if left:
                self._topics[topic] = left
            else:
                self._leave(topic)
        return True

    def advance_clock(self, asset: bytes, time_us: int, goal: Mapping[int, int]) -> bool:
        """Close the windows of an index by the clock, and send the rows of these windows if jobs read them.

        Only the tail's thread may call this.

        Args:
            asset: The index.
            time_us: The clock time.
            goal: The offsets of the index's topic before which everything is that follows from rows accepted before
                this time.

        Returns:
            False if it can't be done now: the index hasn't reached the goal, or its rows can't be sent.
        """
        for subscription in (s for subscriptions in self._topics.values() for s in subscriptions):
            if subscription.plan.asset == asset:
                reached = subscription.next
                if any(self._holds(p) and reached.get(p, 0) < offset for p, offset in goal.items()):
                    return False
                advance_clock_time(self._store, asset, time_us)
                self._emit(subscription, reached, self._send)
                return not subscription.unsent
        return False

    def subscriptions(self) -> list[Subscription]:
        """Return all subscriptions, also those whose topic doesn't exist yet."""
        return [*self._waiting, *(s for subscriptions in list(self._topics.values()) for s in subscriptions)]

    def follows(self, asset: bytes) -> bool:
        """Return whether an index is among the subscriptions."""
        return any(subscription.plan.asset == asset for subscription in self.subscriptions())

    def ends(self, topic: str) -> Mapping[int, int]:
        """Return the last known end of each partition of a topic; partitions without a known end are missing."""
        return self._reader.ends(topic)

    def _run(self) -> None:
        show_name()
        try:
            while not self._stopping.is_set():
                self._obey()
                self._join_waiting()
                if self._topics:
                    self._step()
        except Exception as error:
            if isinstance(error, DamagedError):
                self._store.mark_damaged(str(error))
            self.failure = error
            LOGGER.exception("the index no longer follows its topics (%s)", self._name)
        finally:
            self._reader.close()

    def _obey(self) -> None:
        """Execute the waiting commands; if there is nothing to read, wait for one."""
        try:
            command = self._commands.get(timeout=None if not (self._topics or self._waiting) else self._pause())
            while True:
                command()
                command = self._commands.get_nowait()
        except queue.Empty:
            pass

    def _pause(self) -> float:
        """Return how long to wait for a command: not at all if there is something to read."""
        return 0.0 if self._topics else max(0.001, self._retry_at - time.monotonic())

    def _join_waiting(self) -> None:
        """Start to read topics that exist by now."""
        if not self._waiting or time.monotonic() < self._retry_at:
            return
        self._retry_at = time.monotonic() + RETRY_S
        try:
            topics = self._reader.topics()
        except KafkaException as error:
            LOGGER.warning("the index waits for Kafka at %s: %s", self._bootstrap_servers, error.args[0].str())
            return
        self._writer.take_over()
        waiting, self._waiting = self._waiting, []
        joining = []
        for subscription in waiting:
            known = topics.get(subscription.plan.topic)
            # A partition without a leader doesn't answer the check in `_not_ahead`, and the other topics would have to
            # wait for it.
            led = known is not None and all(p.leader >= 0 for p in known.partitions.values())
            if known is None or known.error is not None or not known.partitions or not (led or subscription.checked):
                self._waiting.append(subscription)
                continue
            try:
                self._writer.prepare(subscription.plan)
            except InvalidInputError:
                LOGGER.exception("%s can't be indexed", subscription.plan.dataset)
                continue
            stored = self._store.offsets(subscription.plan.asset)
            subscription.refused = self._store.left_out(subscription.plan.asset)
            subscription.next = {p: stored.get(p, 0) for p in known.partitions if self._holds(p)}
            joining.append(subscription)
        joining = self._not_ahead(joining)
        # The subscription with the greatest offsets comes first. The tail reads the topic from there, and `_join`
        # leaves the others, which need earlier records, to `when_behind`.
        for subscription in sorted(joining, key=lambda s: -sum(s.next.values())):
            self._join(subscription)

    def _not_ahead(self, joining: Sequence[Subscription]) -> list[Subscription]:
        """Return the subscriptions that can be joined now; those that are ahead of their topics begin anew.

        Each is looked at once, at its first start in this process. While this process reads, the consumer notices.
        """
        unchecked = [subscription for subscription in joining if not subscription.checked]
        positions: dict[str, dict[int, Position]] = {}
        for subscription in unchecked:
            found = positions.setdefault(subscription.plan.topic, {})
            for partition, epoch in self._store.epochs(subscription.plan.asset).items():
                offset = subscription.next.get(partition, 0)
                if offset > (found[partition].offset if partition in found else 0):
                    found[partition] = Position(offset, epoch)
        checked = check(self._bootstrap_servers, positions)
        for subscription in unchecked:
            topic = subscription.plan.topic
            if topic in checked.unanswered:
                self._waiting.append(subscription)
                continue
            subscription.checked = True
            # If the topic begins after the index's offset, the missing records were removed on purpose, and the archive
            # has them. Records that nobody has any more are a loss, after which the index is built anew.
            if topic in checked.lost and not self._begins_behind(subscription):
                self._tell_loss(topic, [subscription], checked.lost[topic])
                self._writer.forget(subscription.plan.asset)
                subscription.next = dict.fromkeys(subscription.next, 0)
                subscription.refused = 0
        return [subscription for subscription in joining if subscription.checked]

    def _tell_loss(self, topic: str, subscriptions: Sequence[Subscription], reason: str) -> None:
        """Log the loss of records that indexes of a topic have read, and note it for the health check."""
        text = (
            f"topic {topic} lacks records that the index had read (up to {_spelled(subscriptions)}): {reason}. Its "
            "broker has lost acknowledged records, as by a power failure, unless the topic is a new one. The index is "
            "built anew from what is there; send again what was logged before the failure"
        )
        LOGGER.error("%s: indexing it anew", text)
        try:
            # The indexes of all servers, and all shards, read the same records, so one text for a topic is enough.
            self._note_loss(Loss(topic=topic, follower="index", kind="index", text=text))
        except UnavailableError as error:
            # The index goes on without Postgres, and the log has the loss.
            LOGGER.warning("the health check can't show what topic %s lacks: %s", topic, error)

    def _join(self, subscription: Subscription) -> None:
        """Read a topic for an index from the index's offsets."""
        topic = subscription.plan.topic
        if self._when_behind is not None and self._begins_behind(subscription):
            self._when_behind(subscription)
            return
        self._emissions.pop(subscription.plan.asset, None)
        # An earlier process may have ended after it had written rows to the database and before it had sent them. Such
        # rows are sent now, even if no further record comes.
        self._emit(subscription, subscription.next, self._send)
        reading = self._reader.positions(topic)
        if reading is not None:
            if all(offset >= reading.get(p, 0) for p, offset in subscription.next.items()):
                self._topics[topic].append(subscription)
                return
            if self._when_behind is not None:
                self._when_behind(subscription)
                return
            start = {p: min(reading.get(p, 0), offset) for p, offset in subscription.next.items()}
        else:
            start = subscription.next
        self._reader.start(topic, start, None if self._when_behind is not None else self._past_of(subscription.plan))
        self._topics.setdefault(topic, []).append(subscription)

    def _begins_behind(self, subscription: Subscription) -> bool:
        """Return whether the broker lacks messages that an index needs; False if it doesn't answer now."""
        try:
            return self._reader.begins_behind(subscription.plan.topic, subscription.next)
        except KafkaException as error:
            LOGGER.debug("the beginning of %s isn't known yet: %s", subscription.plan.topic, error)
            return False

    def _leave(self, topic: str) -> None:
        del self._topics[topic]
        self._reader.stop(topic)

    def _step(self) -> None:
        """Read the records that are there and apply them."""
        taken = self._reader.read(POLL_S)
        for topic, error in taken.errors:
            self._on_error(error, topic)
        for topic, reason in taken.waiting.items():
            self._wait(topic, reason)
        if not taken.messages:
            self._hand_over(self.subscriptions())
        for topic, messages in taken.messages.items():
            self._apply_topic(topic, messages)
            self._leave_behind(topic)

    def _apply_topic(self, topic: str, messages: list[Message]) -> None:
        subscriptions = self._topics.get(topic, [])
        for subscription in subscriptions:
            starts = subscription.next
            new = [m for m in messages if m[3] >= starts.get(m[2], 0)]
            if new:
                self._apply(subscription, new)
        # The known lag is from the moment at which these messages were read. If they were many, more may have come
        # while they were applied. So the topic isn't handed over before the next read shows the lag; otherwise a topic
        # with a steady high rate would move to and fro.
        if sum(records_in(value) for _, value, _, _ in messages) <= CAUGHT_UP:
            self._hand_over(subscriptions)

    def _leave_behind(self, topic: str) -> None:
        """Leave a topic to another tail if a backlog has grown on it, which would delay the other topics."""
        subscriptions, lag = self._topics.get(topic, []), self._reader.lag(topic) or 0
        if self._when_behind is None or max((s.estimated(lag) for s in subscriptions), default=0) <= BEHIND:
            return
        self._leave(topic)
        for subscription in subscriptions:
            self._when_behind(subscription)

    def _hand_over(self, subscriptions: Sequence[Subscription]) -> None:
        """Hand subscriptions over to another tail if the backlogs of their topics are gone."""
        if self._when_caught_up is None:
            return
        for subscription in list(subscriptions):
            lag = self._reader.lag(subscription.plan.topic)
            if lag is not None and subscription.estimated(lag) <= CAUGHT_UP and self._when_caught_up(subscription):
                self.remove(frozenset([subscription.plan.asset]))

    def _apply(self, subscription: Subscription, messages: list[Message]) -> None:
        """Apply records; if the index emits rows, by ingestion time, so that each time's changed rows are emitted."""
        parts = [messages] if subscription.plan.emits is None else by_ingestion(messages)
        reached = subscription.next
        for part in parts:
            if not self._apply_part(subscription, part):
                return
            reached = reached | {partition: offset + 1 for _, _, partition, offset in part}
            if part is parts[-1]:
                self._emit(subscription, reached, self._send)
            elif not subscription.unsent:
                # The rows of this part are written to the database, and sent with those of the last part. While rows
                # are `unsent`, another server may be writing them, and further rows would only pile up in the database
                # here.
                self._emit(subscription, reached, None)
        # Other threads read `next` as the index's progress, and expect that the rows computed up to it are on their
        # topic. So `next` advances only after the rows of all parts have been sent.
        subscription.next = reached

    def _apply_part(self, subscription: Subscription, messages: list[Message]) -> bool:
        """Apply records; retry while the database or the broker refuses, and leave out what can't be applied at all.

        Returns False if the thread is to stop.
        """
        singly = False
        while not self._stopping.is_set():
            try:
                if singly:
                    return self._apply_singly(subscription, messages)
                applied = self._writer.apply(subscription.plan, messages)
                subscription.count(applied)
                subscription.note_blocks(len(messages), applied)
            except DamagedError:
                raise
            except UnavailableError:
                LOGGER.exception("a batch for the index at %s can't be written; trying again", self._store.path)
                self._stopping.wait(RETRY_S)
            except Exception:
                LOGGER.exception("a batch for %s failed, its records are tried one by one", subscription.plan.topic)
                singly = True
            else:
                return True
        return False

    def _emit(self, subscription: Subscription, offsets: Mapping[int, int], send: Send | None) -> None:
        """Send the rows that changed, if jobs read them; retry while the broker or the database refuses.

        Without `send` they wait in the database for the next call.
        """
        plan = subscription.plan
        if plan.emits is None:
            return
        while not self._stopping.is_set():
            try:
                emission = self._emissions.get(plan.asset)
                if emission is None:
                    recover(plan, plan.emits, self._store, self._bootstrap_servers)
                    emission = self._emissions[plan.asset] = Emission(plan, plan.emits, self._store)
                subscription.emitted += emission.run(send, offsets)
            except NotOursError:
                # Rows that aren't sent stay in the database, or their groups stay marked as dirty. When this server has
                # the right to write again, it sends them. If another server has sent rows meanwhile, the index is first
                # built anew, and learns from its output topic what was sent.
                LOGGER.warning("rows of %s aren't written: another server may be doing it", plan.dataset)
                subscription.unsent = True
                return
            except DamagedError:
                raise
            except UnavailableError as error:
                LOGGER.warning("rows of %s wait to be written: %s", plan.dataset, error)
            else:
                subscription.unsent = emission.is_held
                return
            self._stopping.wait(RETRY_S)

    def _apply_singly(self, subscription: Subscription, messages: list[Message]) -> bool:
        """Apply records one by one, and leave out those that fail; return False if the thread is to stop.

        Raises `UnavailableError` if the database or the broker refuses. It may be called again then.
        """
        plan = subscription.plan
        for message in messages:
            left_out: list[LeftOut] = []
            in_block = is_block(message[1])
            for single in singles_of(message):
                apply = partial(self._writer.apply, plan, [message])
                reason = self._apply_one(
                    subscription, partial(self._writer.apply_single, plan, single) if in_block else apply
                )
                if self._stopping.is_set():
                    return False
                if reason:
                    left_out.append(LeftOut(single[2], reason))
            if in_block or left_out:
                self._writer.skip(plan, message, left_out)
                subscription.refused += len(left_out)
        return True

    def _apply_one(self, subscription: Subscription, apply: Callable[[], Applied]) -> str:
        """Apply a record of a message; return "" if that succeeded, or else why it didn't."""
        for _ in range(ATTEMPTS_WITHOUT_MEMORY):
            try:
                subscription.count(apply())
            except UnavailableError:
                raise
            except MemoryError:
                LOGGER.exception("there is no memory for a record of %s; trying again", subscription.plan.topic)
                if self._stopping.wait(RETRY_S):
                    break
            except Exception as error:
                LOGGER.exception("a record of %s can't be applied", subscription.plan.topic)
                return f"the index can't apply it: {type(error).__name__}: {error}"
            else:
                return ""
        return "the index has no memory to apply it"

    def _wait(self, topic: str, reason: str) -> None:
        """Try again later to read a topic whose past isn't there."""
        if self._reasons.get(topic) != reason:
            LOGGER.error("the index waits for topic %s: %s", topic, reason)
        self._reasons[topic] = reason
        self._waiting += self._topics.pop(topic, [])
        self._retry_at = time.monotonic() + RETRY_S

    def _on_error(self, error: KafkaError, topic: str | None) -> None:
        """Handle an error: connections recover by themselves, a topic without the offset is indexed anew."""
        if error.code() in LOST_OFFSET and topic in self._topics:
            if self._begins_behind(self._topics[topic][0]):
                # The records that the index needs were removed from the topic after they had been archived. So nothing
                # is lost: the index joins again, and gets them from the archive.
                subscriptions = self._topics[topic]
                self._leave(topic)
                self._waiting += subscriptions
                return
            subscriptions = self._topics[topic]
            self._tell_loss(topic, subscriptions, error.str())
            self._leave(topic)
            for subscription in subscriptions:
                self._writer.forget(subscription.plan.asset)
                self.add(subscription)
            return
        LOGGER.debug("while reading %s: %s", topic, error)


def _spelled(subscriptions: Sequence[Subscription]) -> str:
    """Return the greatest offset of each partition that an index of the topic has reached."""
    reached: dict[int, int] = {}
    for subscription in subscriptions:
        for partition, offset in subscription.next.items():
            reached[partition] = max(offset, reached.get(partition, 0))
    return ", ".join(f"{partition}@{offset}" for partition, offset in sorted(reached.items()))
