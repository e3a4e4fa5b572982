"""The erasure of keys: each request is written down first, and then done by every server, even after a restart.

1. The request writes the hashes of the keys to Postgres, after which the erasure is certain.
2. This server hides the keys from then on and refuses rows of them; others do so within a second or two.
3. A record on the topic reaches all indexes that are ever built from it. Each topic for which the dataset is computed
   again gets the record, too.
4. Each server removes the entries of the keys from its index, and writes that to Postgres.
5. A server removes the dead letters of the keys.
6. After an erasure downstream, the archive removes the rows from its table and the topic; then a server has everything
   that was computed from them computed again (`caraway.apps.server.erasure.recomputing`), and each server removes the
   old indexes from its files and snapshots.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from typing import Protocol

import structlog
from confluent_kafka import KafkaException

from caraway.apps.server.erasure.recomputing import Recomputing
from caraway.dataplane.topics.erased_keys import ErasedKeys, encode_erasure
from caraway.dataplane.topics.erasure_places import DEAD_LETTERS_PLACE, DERIVED, index_files_of, index_of
from caraway.dataplane.topics.producer import TopicWriter
from caraway.errors import UnavailableError
from caraway.graph.erase_keys import Erasure
from caraway.graph.plan.model import GraphPlan, IndexPlan, definition_of
from caraway.process.recurring import Recurring
from caraway.state.blueprints import EMITS
from caraway.state.erasures import ErasedKey, ErasureLog, ErasureRecord, erasure_by
from caraway.state.plans import Needed

LOG = structlog.get_logger(__name__)

INTERVAL_S = 1.0
WRITE_TIMEOUT_S = 10.0


class ServerIndexes(Protocol):
    """The index of a server (`caraway.apps.server.server_index.ServerIndex`)."""

    def erasures(self, *, pending: bool) -> list[tuple[IndexPlan, list[Erasure]]]:
        """Return the erased keys of each index: those of which entries may be left, or all others."""
        ...

    def remove_erased(self, plan: IndexPlan, stopping: threading.Event) -> bool:
        """Remove the entries of erased keys from an index; return whether all are removed."""
        ...

    def purge(self, gone: set[bytes], stopping: threading.Event) -> bool:
        """Remove the entries of indexes that are gone from files and snapshots; return whether that is done."""
        ...


class DeadLetters(Protocol):
    """The dead letters (`caraway.dataplane.ingest.erased_letters.LetterErasure`)."""

    def sweep(self, plans: Sequence[GraphPlan], retired_jobs: Collection[str]) -> None:
        """Remove the dead letters of erased keys and of retired jobs."""
        ...


class Eraser(Recurring):
    """Reads which keys are to be erased, and erases them, in a thread."""

    def __init__(
        self,
        log: ErasureLog,
        erased: ErasedKeys,
        index: ServerIndexes,
        writer: TopicWriter,
        *,
        recomputing: Recomputing,
        letters: DeadLetters,
        member: str,
        needed: Callable[[], Needed | None],
    ) -> None:
        """Create the eraser; `start` begins its work.

        Args:
            log: The requests to erase, and their progress.
            erased: The keys to hide, which the eraser keeps up to date.
            index: The index of this server.
            writer: The writer of the records.
            recomputing: Has everything computed again that was computed from erased rows.
            letters: The dead letters.
            member: The name of this server, under which its progress is written down.
            needed: Returns what the branches need, None before the first read; only topics in it get records.
        """
        super().__init__("eraser", self._erase, INTERVAL_S, at_once=True)
        self._log = log
        self._erased = erased
        self._index = index
        self._writer = writer
        self._recomputing = recomputing
        self._letters = letters
        # No erasure up to this id has dead letters left to remove.
        self._letters_number = 0
        self.member = member
        """The name of this server."""
        self._place = index_of(member)
        self._files_place = index_files_of(member)
        self._needed = needed
        self._number = 0
        self._known: dict[tuple[str, Erasure], int] = {}
        self._met: set[bytes] = set()
        # By place: the ids of the erasures that are done there, but not marked as done in Postgres yet. The only place
        # is the index of this server.
        self._unwritten: dict[str, set[int]] = {}
        self._refreshing = threading.Lock()

    def ask(self, keys: Sequence[ErasedKey]) -> int:
        """Write down the keys that are to be erased, and hide them; return how many of the keys are new.

        Raises:
            UnavailableError: Postgres doesn't answer; nothing is erased.
        """
        new = self._log.add(keys)
        self.refresh()
        self.wake()
        return new

    def refresh(self) -> None:
        """Read the keys that are to be erased, and hide them. Raises `UnavailableError` if Postgres doesn't answer."""
        with self._refreshing:
            while records := self._log.since(self._number):
                for record in records:
                    key, erasure = record.key, erasure_by(record.key)
                    self._known[key.topic, erasure] = record.id
                    self._erased.add(key.topic, [erasure])
                self._number = records[-1].id

    def _erase(self) -> None:
        # The first read of the served graphs also creates the tables of erasures in Postgres. Before that read,
        # `_needed()` is None.
        if self._needed() is not None:
            try:
                self.write_records()
            finally:
                # The other steps are done even if the records can't be written, for example because the topic of a new
                # commit doesn't exist yet.
                self.remove()
                if self._number:
                    # As long as nothing was ever erased, Postgres needn't be asked every second about the progress of
                    # erasures.
                    self.recompute()
                    self.remove_letters()

    def write_records(self) -> None:
        """Write the records that aren't on their topics yet; writing a record twice changes nothing.

        Raises `UnavailableError` if Postgres or Kafka doesn't answer.
        """
        needed = self._needed()
        if needed is None:
            return
        records = self._log.unrecorded()
        topics = _topics([planned.plan for planned in needed.commits.values()] if records else ())
        sent = [
            # An erasure whose topic nobody needs any more counts as recorded without a record: the topic is deleted
            # with all of its rows.
            (record.id, [self._announce(topic, record) for topic in topics.get(definition_of(record.key.topic), ())])
            for record in records
        ]
        written: list[int] = []
        failure: Exception | None = None
        for number, futures in sent:
            try:
                for future in futures:
                    future.result(WRITE_TIMEOUT_S if failure is None else 0.0)
                written.append(number)
            except (KafkaException, TimeoutError, UnavailableError) as error:
                failure = error
        if written:
            self._log.recorded(written, needed.commits)
        if failure is not None:
            raise UnavailableError(f"Kafka doesn't take the record of an erasure: {failure}") from failure

    def _announce(self, topic: str, record: ErasureRecord) -> "Future[None]":
        return self._writer.write_to_all(topic, *encode_erasure(erasure_by(record.key)))

    def remove(self) -> None:
        """Remove the entries of erased keys, and write to Postgres which are removed.

        Raises `UnavailableError` if Postgres doesn't answer, or the index refuses.
        """
        waiting = self._index.erasures(pending=True)
        if any(plan.asset not in self._met for plan, _ in waiting):
            # Erasures that aren't pending are done in this server's index. A crash may have kept the server from
            # marking them in Postgres. So they are marked once after each start.
            for plan, gone in self._index.erasures(pending=False):
                self._done(self._place, plan.topic, gone)
                self._met.add(plan.asset)
        for plan, left in waiting:
            if left and self._index.remove_erased(plan, self.stopping):
                LOG.info("removed erased keys from an index", dataset=plan.dataset, keys=len(left))
                self._done(self._place, plan.topic, left)
        for place, numbers in self._unwritten.items():
            if numbers:
                self._log.done(numbers, place)
                numbers.clear()

    def recompute(self) -> None:
        """Go on with erasures downstream: begin to compute again, and remove the old indexes from this server's files.

        Raises `UnavailableError` if Postgres doesn't answer, or the index refuses.
        """
        self._recomputing.begin()
        self._recomputing.finish()
        if due := self._log.between(DERIVED, self._files_place):
            names = self._recomputing.retired_indexes(since=min(record.asked_at for record in due))
            gone = {bytes.fromhex(name.partition(EMITS)[0]) for name in names}
            if self._index.purge(gone, self.stopping):
                self._log.done([record.id for record in due], self._files_place)
                LOG.info("removed indexes with erased rows from files and snapshots", indexes=len(gone))

    def remove_letters(self) -> None:
        """Remove the dead letters of erased keys, once for each erasure.

        Raises `UnavailableError` if Postgres or Kafka doesn't answer, or a secret to compare keys is missing.
        """
        needed = self._needed()
        downstream = {record.id: record for record in self._log.between(DERIVED, DEAD_LETTERS_PLACE)}
        # No erasure up to `_letters_number` is due any more. So Postgres is searched for due ones only if there are
        # newer erasures, and not every second.
        number = self._number
        new = self._log.undone(DEAD_LETTERS_PLACE, downstream=False) if number > self._letters_number else []
        due = {*new, *downstream}
        if needed is None:
            return
        if not due:
            self._letters_number = number
            return
        since = min((record.asked_at for record in downstream.values()), default=None)
        retired = frozenset() if since is None else self._recomputing.retired_jobs(since=since)
        self._letters.sweep([planned.plan for planned in needed.commits.values()], retired)
        self._log.done(due, DEAD_LETTERS_PLACE)

    def _done(self, place: str, topic: str, erasures: Iterable[Erasure]) -> None:
        numbers = (self._known.get((topic, erasure)) for erasure in erasures)
        self._unwritten.setdefault(place, set()).update(number for number in numbers if number is not None)


def _topics(plans: Iterable[GraphPlan]) -> dict[str, set[str]]:
    """Return the topics of plans on which keys can be erased, by their definitions."""
    found: dict[str, set[str]] = {}
    for plan in plans:
        for topic in plan.topics:
            found.setdefault(definition_of(topic.name), set()).add(topic.name)
    return found
