"""The worker of one sink: it follows a dataset's topic and writes the changes, in order.

After a crash, or when another server takes over, the worker goes on from the last position: the greater of the one in
Postgres and the one that the system itself keeps, or only the latter for systems that keep it with the rows. Its state
of the table may be older; then it is brought up to the position from the topic, and nothing is sent meanwhile.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import structlog

from caraway.dataplane.sinks import metrics
from caraway.dataplane.sinks.changelog import Changelog
from caraway.dataplane.sinks.changes import Change, merged
from caraway.dataplane.sinks.feed import Feed
from caraway.dataplane.sinks.positions import SinkPosition
from caraway.dataplane.sinks.replays import GONE, OUTDATED, REPLAYED, Again, Asked
from caraway.dataplane.sinks.table_state import TableState
from caraway.dataplane.sinks.writer import EXACTLY_ONCE, Batch, Refusal, RetryLaterError, SinkWriter
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.left_out import LeaveOut, log_left_out
from caraway.dataplane.topics.metrics import count_letters
from caraway.dataplane.topics.reader import Message
from caraway.dataplane.topics.truncation import Reached
from caraway.errors import UnavailableError
from caraway.graph.plan.model import SinkPlan
from caraway.state.ownership.leases import HeldLease
from caraway.state.sink_replays import SENT

LOG = structlog.get_logger(__name__)

# The worker waits at most this many seconds for a message, and then checks whether it must stop or renew its lease.
POLL_S = 0.5
# The most messages and bytes of a batch: of a sink that is written continuously, and of one that is written at
# intervals.
BATCH_MESSAGES, BATCH_BYTES = 1_000, 4 * 1024 * 1024
ROUND_MESSAGES, ROUND_BYTES = 50_000, 32 * 1024 * 1024
# The worker waits at most this many seconds for the rest of an interrupted batch. All messages of that batch were on
# the topic before.
REST_S = 30.0
# The seconds between two looks for dead letters that are to be sent again.
REPLAYS_S = 1.0
LOST = "another server writes it now"
GOES_BACK = "The sink goes on from there; what it has written of the lost records stays in its system"


class Positions(Protocol):
    """The store of positions (`caraway.dataplane.sinks.positions.SinkPositions`)."""

    def load(self, sink: str) -> SinkPosition | None:
        """Return the last position."""
        ...

    def save(self, sink: str, token: int, position: SinkPosition) -> bool:
        """Replace the position, unless a later owner has saved one."""
        ...


# Opens the sink's writer, given the branch that its envelopes name, and a function that it calls with refused changes.
Connect = Callable[[str, Callable[[Sequence[Refusal]], None]], SinkWriter]
# Writes dead letters of refused changes, given the branch that envelopes name, and waits until they are durable.
Refuse = Callable[[str, Sequence[Refusal]], None]


@dataclass(frozen=True, slots=True)
class _Open:
    """A sink that is open, with the topic of its dataset and the rows on this server's disk."""

    feed: Feed
    state: TableState
    writer: SinkWriter
    changelog: Changelog


class SinkWorker:
    """Writes one sink while it has the right to."""

    def __init__(
        self,
        name: str,
        plan: SinkPlan,
        *,
        connect: Connect,
        refuse: Refuse,
        leave_out: LeaveOut = log_left_out,
        note_loss: Callable[[str], object] = lambda _: None,
        feed: Callable[[], Feed],
        state: Callable[[], TableState],
        right: HeldLease,
        positions: Positions,
        erased: ErasedKeys,
        asked: Asked,
        clock: Callable[[], float] = time.monotonic,
        stopping: threading.Event | None = None,
    ) -> None:
        """Prepare.

        Args:
            name: The name of the sink, under which its position is kept.
            plan: The sink.
            connect: Opens the sink.
            refuse: Writes dead letters.
            leave_out: Writes dead letters of records that can't be read.
            note_loss: Called with a text for the operator if the topic lacks records that were written.
            feed: Opens the dataset's topic.
            state: Opens the rows of the dataset on this server's disk.
            right: The right to write the sink.
            positions: The store of positions.
            erased: The erased keys.
            asked: The dead letters whose changes are to be sent again.
            clock: Returns the time in seconds.
            stopping: Set when the worker is to stop, which ends its pauses.
        """
        self._name, self._plan = name, plan
        self._connect, self._refuse, self._feed_of, self._state_of = connect, refuse, feed, state
        self._right, self._positions, self._erased = right, positions, erased
        self._asked = asked
        self._leave_out, self._note_loss = leave_out, note_loss
        self._clock = clock
        self.stopping = stopping or threading.Event()
        self._opened: _Open | None = None
        self._position = SinkPosition(branch=plan.branch)
        # Messages that were read and aren't in a batch yet, in order.
        self._ahead: list[Message] = []
        # The batch that is being written, and the offsets behind its messages in their partitions.
        self._batch: Batch | None = None
        self._taken: Mapping[int, int] = {}
        # The next four attributes are about dead letters that are sent again: those of the current batch; the outcome
        # of each, by its number; the number of the last one that a batch has included; and the time by `_clock` of the
        # next look for more.
        self._again: list[Again] = []
        self._outcomes: dict[int, str] = {}
        self._replayed = 0
        self._look_at = float("-inf")
        # For a sink that is written at intervals: the time by `_clock` at which its next round begins, and the offsets
        # at which the current round ends.
        self._due_at = float("-inf")
        self._round_ends: Mapping[int, int] | None = None
        self.lag: int | None = None
        """How many messages of the topic aren't written yet; None if that isn't known."""
        self.written_at: float | None = None
        """When this server wrote last, in seconds since the epoch; None if it has written nothing."""
        self.refused = 0
        """How many changes became dead letters since this server started to write."""
        # The changes that were refused since the current batch began, by partition and offset, and why.
        self._refused_now: dict[tuple[int, int] | None, str] = {}
        self.refusal = ""
        """Why the last batch was refused; empty if it was written."""

    @property
    def owned(self) -> bool:
        """True if this server has the right to write the sink."""
        return self._right.token is not None

    @property
    def offsets(self) -> dict[int, int]:
        """The offset behind the last message that is written, by partition, as far as this server knows."""
        return {partition: offset for partition, offset in self._position.written.items() if partition != REPLAYED}

    @property
    def guarantee(self) -> str:
        """The guarantee of the sink; empty if this server doesn't write it now."""
        return "" if self._opened is None else self._opened.writer.guarantee

    def step(self) -> bool:
        """Read and write once; return False if another server has the right to write.

        Raises `CarawayError` if the system, Kafka or Postgres doesn't answer. The next call tries again.
        """
        try:
            return self._step()
        except RetryLaterError:
            # Nothing is closed here, unlike after other errors: the next call goes on with this batch, and `batch.sent`
            # says how far it got.
            raise
        except Exception:
            self._close()
            raise

    def stop(self) -> None:
        """Stop writing, so that other servers can. Raises `UnavailableError` if Postgres doesn't answer."""
        self._close()
        if self._right.token is not None:
            self._right.release()

    def _step(self) -> bool:
        if not self._right.keep(succeeds=True):
            self._close()
            return False
        opened = self._opened = self._opened or self._open()
        if self._batch is None:
            self._batch = self._refused_before(opened)
        if self._batch is None and self._clock() < self._due_at:
            self.stopping.wait(POLL_S)
            self._note_lag(opened)
            return True
        batch = self._batch = self._batch or self._next(opened)
        if batch is not None:
            self._deliver(opened, batch)
            self._batch = None
        self._note_lag(opened)
        return True

    def _open(self) -> _Open:
        """Connect to the sink, and go on where the last owner was."""
        found = self._positions.load(self._name)
        position = found or SinkPosition(branch=self._plan.branch)
        # If a step fails, everything that was opened before it is closed. If all steps succeed, `pop_all` keeps
        # everything open.
        with ExitStack() as stack:
            feed = stack.enter_context(closing(self._feed_of()))
            state = stack.enter_context(closing(self._state_of()))
            refuse = partial(self._note_refused, position.branch)
            writer = stack.enter_context(closing(self._connect(position.branch, refuse)))
            self._begin(found, position, feed=feed, state=state, writer=writer)
            stack.pop_all()
        return _Open(feed, state, writer, Changelog(self._plan, state, self._erased, self._leave_out))

    def _begin(
        self, found: SinkPosition | None, position: SinkPosition, *, feed: Feed, state: TableState, writer: SinkWriter
    ) -> None:
        """Read the topic from where the sink has all changes.

        Args:
            found: The stored position; None if there is none.
            position: The same, or that of the topic's beginning.
            feed: The topic.
            state: The rows on this server's disk.
            writer: The sink.
        """
        there = writer.positions()
        partitions = feed.partitions()
        ours = {} if writer.remembers else position.written
        written = {p: max(ours.get(p, 0), there.get(p, 0)) for p in partitions}
        until = position.until
        if any(written[p] >= end > position.written.get(p, 0) for p, end in until.items()):
            # The system's own position shows that the interrupted batch was written. Only the position in Postgres is
            # older, so the batch needn't be repeated.
            until = {}
        self._replayed = max(ours.get(REPLAYED, 0), there.get(REPLAYED, 0))
        written = self._with_replayed(written)
        if self._replayed:
            self._asked.settle(self._replayed)
        # The system may be further than the stored position, with records of a later epoch than the stored one.
        of_epochs = {p: min(written[p], position.written.get(p, 0)) for p in partitions}
        intact = feed.continuation(Reached({p: written[p] for p in partitions}, position.epochs, of_epochs))
        epochs = {p: epoch for p, epoch in position.epochs.items() if written.get(p) == of_epochs.get(p)}
        self._position = SinkPosition(branch=position.branch, written=written, until=until, epochs=epochs)
        if intact.lost:
            # Other records now have the offsets of the lost ones, and the system lacks their changes. So the sink goes
            # back to the offsets at which the loss begins.
            written |= intact.offsets
            self._note_loss(intact.told(f"the sink {self._plan.target}", GOES_BACK))
            self._position = replace(self._position, written=written, until={})
        if found is None or intact.lost:
            self._save(self._position)
        elif self._plan.sink.every_us is not None:
            self._due_at = self._clock() + max(0.0, self._plan.sink.every_us / 1e6 - found.age_s)
        if any(offset > written.get(p, 0) for p, offset in state.positions().items()) or self._has_lost(feed, state):
            # The state is ahead of what is written, or it has records that the topic has lost. So the rows before the
            # next changes aren't known any more, and the state is made again from the topic.
            state.clear()
        known = state.positions()
        feed.start({p: known.get(p, 0) for p in partitions})
        self._ahead = []

    @staticmethod
    def _has_lost(feed: Feed, state: TableState) -> bool:
        """Return whether the topic lacks records that the state has."""
        positions, there = state.positions(), feed.partitions()
        return bool(feed.continuation(Reached({p: positions.get(p, 0) for p in there}, state.epochs())).lost)

    def _next(self, opened: _Open) -> Batch | None:
        """Read messages and return what they change; None if there are none yet."""
        written, until = self._position.written, self._position.until
        messages = self._interrupted(opened, until) if until else self._fresh(opened)
        if not messages:
            self._end_round(opened.feed)
            return None
        changes = opened.changelog.changes(messages)
        self._taken = {partition: offset + 1 for _, _, partition, offset in messages}
        ends = self._with_replayed({**written, **self._taken})
        may_repeat = opened.writer.guarantee != EXACTLY_ONCE
        if may_repeat and not until and any(change.after is None for change in changes):
            until = {partition: end for partition, end in ends.items() if partition != REPLAYED}
            self._save(SinkPosition(branch=self._position.branch, written=written, until=until))
        return Batch(changes=merged(changes), reached=ends)

    def _fresh(self, opened: _Open) -> list[Message]:
        """Return the messages of the next batch."""
        at_intervals = self._plan.sink.every_us is not None
        most, most_bytes = (ROUND_MESSAGES, ROUND_BYTES) if at_intervals else (BATCH_MESSAGES, BATCH_BYTES)
        if not self._ahead:
            self._read(opened)
        while at_intervals and len(self._ahead) < most and _bytes(self._ahead) < most_bytes:
            # The round ends at the offsets at which the topic ended when the round began, so that a busy topic can't
            # delay the write.
            if self._is_round_read(opened.feed) or not self._read(opened):
                break
        count = size = 0
        while count < min(most, len(self._ahead)) and size < most_bytes:
            size += len(self._ahead[count][1] or b"")
            count += 1
        found, self._ahead = self._ahead[:count], self._ahead[count:]
        return found

    def _interrupted(self, opened: _Open, until: Mapping[int, int]) -> list[Message]:
        """Return the messages of a batch that was interrupted, all of them and no others."""
        deadline = self._clock() + REST_S
        while not all(opened.feed.positions().get(partition, 0) >= end for partition, end in until.items()):
            self._read(opened)
            if self._clock() > deadline:
                raise UnavailableError("the rest of an interrupted batch can't be read yet")
        found = [message for message in self._ahead if message[3] < until.get(message[2], 0)]
        self._ahead = [message for message in self._ahead if message[3] >= until.get(message[2], 0)]
        return found

    def _read(self, opened: _Open) -> bool:
        """Read some messages, and return whether there were any. Those that are written already go into the state."""
        feed, written = opened.feed, self._position.written
        messages = feed.read(POLL_S)
        old = [message for message in messages if message[3] < written.get(message[2], 0)]
        if old:
            opened.changelog.changes(old)
            opened.state.commit({partition: offset + 1 for _, _, partition, offset in old}, feed.epochs())
        self._ahead += [message for message in messages if message[3] >= written.get(message[2], 0)]
        if self._round_ends is None and (ends := feed.ends()).keys() >= written.keys() - {REPLAYED}:
            self._round_ends = ends
        return bool(messages)

    def _is_round_read(self, feed: Feed) -> bool:
        ends, read = self._round_ends, feed.positions()
        return ends is not None and all(read.get(partition, 0) >= end for partition, end in ends.items())

    def _deliver(self, opened: _Open, batch: Batch) -> None:
        writer = opened.writer
        if not self._right.keep(succeeds=True):
            raise UnavailableError(LOST)
        self.refusal = ""
        system, dataset = self._plan.sink.connector.system_name, self._plan.dataset.name
        if batch.changes or writer.remembers:
            begun = self._clock()
            writer.write(batch)
            self.written_at = time.time()
            metrics.observe_write(system, dataset, self._clock() - begun)
        # `_refused_now` also has the changes that earlier calls of `write` have refused for this batch.
        refused = len(self._refused_now)
        self._save(SinkPosition(branch=self._position.branch, written=batch.reached))
        self._note_again()
        # Only the partitions of this batch's messages are committed. In the other partitions, the state may still lack
        # records from before the position.
        opened.state.commit(self._taken, opened.feed.epochs())
        self._end_round(opened.feed)
        metrics.count(system, dataset, written=len(batch.changes) - refused, refused=refused)

    def _note_refused(self, branch: str, refusals: Sequence[Refusal]) -> None:
        self._refuse(branch, refusals)
        self.refused += len(refusals)
        count_letters(self._plan.dataset.name, "sink", len(refusals))
        self._refused_now |= {(each.change.partition, each.change.offset): each.reason for each in refusals}
        if refusals:
            self.refusal = refusals[-1].reason

    def _refused_before(self, opened: _Open) -> Batch | None:
        """Return a batch of the changes of dead letters that are to be sent again; None if there are none."""
        if self._clock() < self._look_at or self._position.until:
            return None
        known, written = opened.state.positions(), self._position.written
        if any(known.get(partition, 0) < offset for partition, offset in written.items() if partition != REPLAYED):
            # The state hasn't read all records before the position yet, so it can't tell which changes are still the
            # newest of their rows.
            return None
        self._look_at = self._clock() + REPLAYS_S
        again = self._again = list(self._asked.after(self._replayed))
        if not again:
            return None
        self._outcomes = {}
        changes: dict[bytes, Change] = {}
        for each in again:
            if each.change is None:
                self._outcomes[each.number] = GONE
            elif opened.state.is_newest(each.change):
                # If two changes made the same row, the later one is sent.
                changes[each.change.key] = each.change
            else:
                self._outcomes[each.number] = OUTDATED
        self._taken, self._replayed = {}, again[-1].number
        return Batch(changes=list(changes.values()), reached=self._with_replayed(written))

    def _note_again(self) -> None:
        """Note what became of the dead letters whose changes were sent again."""
        again, self._again = self._again, []
        for each in again:
            place = None if each.change is None else (each.change.partition, each.change.offset)
            if place in self._refused_now:
                self._outcomes[each.number] = f"refused again: {self._refused_now[place]}"
            self._outcomes.setdefault(each.number, SENT)
        self._refused_now = {}
        if again:
            self._asked.note(self._outcomes)

    def _with_replayed(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Return a position that also has the last dead letter that was done."""
        return {**offsets, REPLAYED: self._replayed} if self._replayed else dict(offsets)

    def _end_round(self, feed: Feed) -> None:
        """If a round of a sink that is written at intervals is done, let the next one begin an interval later."""
        every_us = self._plan.sink.every_us
        if every_us is not None and not self._ahead and self._is_round_read(feed):
            self._round_ends = None
            self._due_at = self._clock() + every_us / 1e6
            # The age of the stored position tells the next owner when the last round ended (`_begin`), so the position
            # is saved even though it is the same.
            self._save(SinkPosition(branch=self._position.branch, written=self._position.written))

    def _save(self, position: SinkPosition) -> None:
        token = self._right.token
        position = replace(position, epochs=self._epochs(position.written))
        if token is None or not self._positions.save(self._name, token, position):
            raise UnavailableError(LOST)
        self._position = position

    def _epochs(self, written: Mapping[int, int]) -> dict[int, int]:
        """Return epochs in which the topic had all records before a position, where one is known."""
        before, opened = self._position, self._opened
        # An epoch stays valid as long as its position doesn't move. Messages from the archive have no epochs, so once
        # they have moved a position, its epoch is unknown.
        found = {p: epoch for p, epoch in before.epochs.items() if written.get(p) == before.written.get(p)}
        if opened is not None:
            # While the state is made again, the feed reads records before the position, perhaps of an earlier epoch. So
            # the feed's epochs are used only once the feed has reached the position.
            read = opened.feed.positions()
            found |= {p: e for p, e in opened.feed.epochs().items() if read.get(p, 0) >= written.get(p, 0)}
        return found

    def _note_lag(self, opened: _Open) -> None:
        lag = opened.feed.lag()
        self.lag = None if lag is None else lag + len(self._ahead)

    def _close(self) -> None:
        opened, self._opened, self._batch = self._opened, None, None
        self._ahead, self._round_ends, self.lag = [], None, None
        self._again, self._refused_now = [], {}
        if opened is not None:
            for part in (opened.writer, opened.feed, opened.state):
                part.close()


def _bytes(messages: Sequence[Message]) -> int:
    return sum(len(value or b"") for _, value, _, _ in messages)
