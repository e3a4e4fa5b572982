"""Keeping the indexes of the current plans up to date with their topics."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from caraway.dataplane.index.feeding.consumption import BACKLOG
from caraway.dataplane.index.feeding.emission_writer import EmissionWriter
from caraway.dataplane.index.feeding.tail import PastOf, Subscription, Tail, every_partition, without_past
from caraway.dataplane.index.feeding.writer import NoteArrivals
from caraway.dataplane.index.records.delivery import Removal
from caraway.dataplane.index.records.expiry import sweep
from caraway.dataplane.index.records.removal import compact, known_erasures, mark_removed, remove
from caraway.dataplane.index.storage.database import DamagedError
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.erased_keys import ErasedKeys, Hides
from caraway.dataplane.topics.left_out import LeftOutLetters
from caraway.errors import UnavailableError
from caraway.graph.erase_keys import Erasure
from caraway.graph.plan.model import IndexKind, IndexPlan
from caraway.process.recurring import Recurring
from caraway.state.losses import Loss

LOGGER = logging.getLogger(__name__)

STOP_S = 10.0
# The seconds between two checks whether the database was found damaged, and the seconds for which `stop` waits for a
# check that is under way.
REPAIR_INTERVAL_S = 0.2
REPAIR_STOP_S = 3.0
# The seconds to wait for the result of a command to a tail's thread before checking that the thread still runs; an
# ended thread would never answer.
ANSWER_S = 1.0
# The number of entries after which a slice of a removal ends. A slice takes some 3 ms of the thread that writes the
# index, which applies no record meanwhile.
SWEPT_AT_ONCE = 300

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStatus:
    """The progress of an index.

    `lag` is about how many records on the topic aren't in the index (None: not known yet), estimated from the number of
    messages and the average number of records in the last ones, `records_per_message`. `written` and `unchanged` count
    records since the start, of which `newest_ingested_us` is the greatest ingestion time. `refused` counts the records
    that the index has left out since it began, as it couldn't read or apply them; they are dead letters.
    `unsent` is true while rows of aggregates for jobs may wait in the database (see `Subscription`); otherwise the rows
    that follow from the records up to `offsets` are on their topic. `held` is true while the index isn't followed since
    it is to be loaded from tables; then `lag` doesn't count the records that have come since.
    """

    dataset: str
    topic: str
    asset: str
    following: bool
    offsets: dict[int, int]
    lag: int | None
    written: int
    unchanged: int
    refused: int
    newest_ingested_us: int
    emitted: int
    records_per_message: float = 1.0
    unsent: bool = False
    held: bool = False


class IndexWorker:
    """A follower of the topics of the current plans, from the offsets in the store.

    One thread, the live tail, follows the topics whose records are indexed as they come. A topic with a backlog is left
    to a second thread until hardly any of its records wait, so that it doesn't delay the others. An index that is added
    to a topic already followed catches up in the second thread too, so that the live tail needn't go back.

    While a broker is away the threads wait for it; a record that can't be read or applied becomes a dead letter. A
    database that turns out damaged is replaced without a restart, and read again once the new one has caught up.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        store: IndexStore,
        erased: ErasedKeys | None = None,
        *,
        may_emit: Callable[[], bool] | None = None,
        holds: Callable[[int], bool] = every_partition,
        past_of: PastOf = without_past,
        note_arrivals: NoteArrivals | None = None,
        note_loss: Callable[[Loss], object] = lambda _: None,
    ) -> None:
        """Prepare to follow topics of the broker "host:port"; nothing runs before `start`.

        Rows of `erased` keys are left out, and erasures on the topics are added to `erased`. `may_emit` returns whether
        this server has the right to send rows of aggregates; without it the right is assumed. `holds` returns whether a
        partition of the topics is in this index. `past_of` returns what the broker may not have of an index's topic.
        `note_arrivals` is called with the arrivals of markers that are read (`caraway.dataplane.topics.markers`), and
        `note_loss` with topics that lack records which an index had read; it may raise `UnavailableError`.
        """
        self._note_arrivals = note_arrivals
        self._past_of = past_of
        self._holds = holds
        self._bootstrap_servers = bootstrap_servers
        self._store = store
        self._erased = ErasedKeys(dict) if erased is None else erased
        self._lock = threading.Lock()
        self._plans: dict[bytes, IndexPlan] = {}
        # The subscriptions of the current plans, by asset. While a subscription moves from one tail to the other, it
        # may be in neither of them.
        self._subscriptions: dict[bytes, Subscription] = {}
        self._emission_writer = EmissionWriter(bootstrap_servers, may_emit)
        self._letters = LeftOutLetters(bootstrap_servers, "index")
        self._note_loss = note_loss
        self._loads = 0
        self._behind, self._live = self._tails()
        self._repairing = Recurring("index-repair", self.repair, REPAIR_INTERVAL_S)

    def _tails(self) -> tuple[Tail, Tail]:
        servers, store, writer = self._bootstrap_servers, self._store, self._emission_writer
        erased, holds = self._erased, self._holds
        return (
            Tail(
                "behind",
                servers,
                store,
                writer,
                when_caught_up=self._take_over,
                reading=BACKLOG,
                erased=erased,
                holds=holds,
                past_of=self._past_of,
                note_arrivals=self._note_arrivals,
                leave_out=self._letters.write,
                note_loss=self._note_loss,
            ),
            Tail(
                "live",
                servers,
                store,
                writer,
                when_behind=self._leave_behind,
                erased=erased,
                holds=holds,
                note_arrivals=self._note_arrivals,
                leave_out=self._letters.write,
                note_loss=self._note_loss,
            ),
        )

    def start(self) -> None:
        """Start to follow the topics."""
        self._live.start()
        self._behind.start()
        self._repairing.start()

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Stop after the current batches. Applied records are durable; the rest is read again next time."""
        # Both tails are asked to end before either is waited for, so that they end their batches, or their waits for
        # the broker, at the same time.
        self._behind.end()
        self._live.end()
        self._repairing.stop(REPAIR_STOP_S)
        self._behind.stop(timeout_s)
        self._live.stop(timeout_s)
        self._emission_writer.close()
        self._letters.close()

    def problem(self) -> str | None:
        """Return the reason why the index can't be read; None if it can."""
        if self._store.refusing or self._store.damaged:
            return "it was damaged and isn't built anew yet"
        return None if self.is_alive() else "its worker has ended; the log tells why"

    def repair(self) -> None:
        """Check the database once: replace it if it is damaged, allow reads if the new one has caught up.

        Raises `UnavailableError` if the damaged database can't be replaced now.
        """
        store = self._store
        if store.damaged:
            self.rebuild()
        elif store.due is not None and self.has_regained(store.due):
            store.end_refusing()
            LOGGER.info("the index at %s has all that it had before it was damaged", store.path)

    def rebuild(self) -> None:
        """Replace the damaged database by a new one, and follow the topics into it.

        Raises `UnavailableError` if it can't be replaced now; the caller may try again.
        """
        with self._lock:
            tails = self._behind, self._live
            for tail in tails:
                tail.stop(STOP_S)
                if tail.is_alive():
                    raise UnavailableError("the index can't be built anew while a batch is being applied")
            followed = self._subscriptions.values()
            due = self._store.due or {s.plan.asset: s.next for s in followed if s.plan.emits is None}
            self._store.begin_anew(due)
            self._subscriptions = {asset: Subscription(plan) for asset, plan in self._plans.items()}
            self._behind, self._live = self._tails()
            self._live.start()
            self._behind.start()
            added = list(self._subscriptions.values())
            self._behind.do(lambda: self._change(frozenset(), added))

    def has_regained(self, due: Mapping[bytes, Mapping[int, int]]) -> bool:
        """Return whether each index of `due` that is still wanted has reached its offsets, or the end of its topic."""
        wanted, positions = self._plans, {position.asset: position for position in self.positions()}
        return all(
            asset not in wanted or ((found := positions.get(asset.hex())) is not None and _reaches(found, offsets))
            for asset, offsets in due.items()
        )

    def is_alive(self) -> bool:
        """Return whether the topics are followed: False before the start, and after a failure that needs a restart."""
        return self._live.is_alive() and self._behind.is_alive() and not self._store.damaged

    def set_plans(self, plans: Sequence[IndexPlan]) -> None:
        """Follow the topics of `plans` from now on, and no others. Data of other indexes stays."""
        wanted = {plan.asset: plan for plan in plans}
        with self._lock:
            removed = frozenset(self._plans.keys() - wanted.keys())
            added = [Subscription(plan) for asset, plan in wanted.items() if asset not in self._plans]
            self._plans = wanted
            kept = {asset: s for asset, s in self._subscriptions.items() if asset not in removed}
            self._subscriptions = kept | {subscription.plan.asset: subscription for subscription in added}
            # The second tail removes assets before the live tail adds any, so that an asset which is removed and added
            # again is never followed by both tails.
            self._behind.do(lambda: self._behind.remove(removed) and self._change(removed, added))

    def hold(self, asset: bytes) -> bool:
        """Stop following an index until `release` or `load`; return whether it is one of the current plans.

        When this returns, nothing writes the index any more. A repair of the database lets it be followed again.
        """
        return self._held(asset) is not None

    def _held(self, asset: bytes) -> Subscription | None:
        with self._lock:
            found = self._subscriptions.get(asset)
            if found is None or found.held is not None:
                return found
            ends = (self._live if self._live.follows(asset) else self._behind).ends(found.plan.topic)
            # A new object, since whoever is handing the old one over between the tails finds that it isn't wanted.
            held = self._subscriptions[asset] = replace(found, next=dict(found.next), held=dict(ends))
            behind, live = self._behind, self._live
        gone = frozenset([asset])
        # The second tail comes first, as in `set_plans`: what it has been told before may add the index to the other.
        self._done(behind, partial(behind.remove, gone))
        self._done(live, partial(live.remove, gone))
        return held

    def release(self, asset: bytes) -> None:
        """Follow an index again that is held, from the offsets in the store on."""
        with self._lock:
            found = self._subscriptions.get(asset)
            if found is not None and found.held is not None:
                followed = self._subscriptions[asset] = replace(found, held=None)
                self._behind.do(lambda: self._change(frozenset(), [followed]))

    def load(self, asset: bytes, tables: Sequence[Path], offsets: Mapping[int, int]) -> bool:
        """Replace all data of an index by that of tables, and follow its topic from there on.

        Args:
            asset: The index.
            tables: See `IndexStore.load`.
            offsets: The offsets up to which the tables account for the topic.

        Returns:
            False if the index isn't one of the current plans any more, or a repair of the database came in between.

        Raises:
            UnavailableError: The database refuses. The index begins anew with its topic then, or as it was.
        """
        held = self._held(asset)
        if held is None:
            return False
        store, behind = self._store, self._behind

        def emptied() -> bool:
            has_data = store.has_data(asset)
            if has_data:
                store.drop(asset)
            return has_data

        def loaded() -> bool:
            store.load(asset, tables, offsets)
            self._loads += 1
            return True

        # The thread of a tail writes, since a repair replaces the database only after the tails have ended.
        try:
            if self._done(behind, lambda: self._wants(held) and emptied()):
                # RocksDB puts tables on its lowest level only if it has no marks of removed entries of these keys.
                store.rewrite(asset)
            return bool(self._done(behind, lambda: self._wants(held) and loaded()))
        except DamagedError as error:
            store.mark_damaged(str(error))
            raise
        finally:
            self.release(asset)

    def expire(self, asset: bytes, horizon_us: int, stopping: threading.Event) -> int:
        """Remove the versions of an index that were superseded at or before a time, and return how many they were.

        This is done slice by slice (see `sweep`), until `stopping` is set. Nothing is removed while the index isn't
        followed.

        Raises `UnavailableError` if the database refuses.
        """
        removed, start = 0, b""
        while not stopping.is_set():
            try:
                swept = self._between_batches(asset, partial(self._sweep, asset, horizon_us, start))
            except DamagedError as error:
                self._store.mark_damaged(str(error))
                raise
            removed += swept.removed if swept else 0
            if not swept or swept.next is None:
                break
            start = swept.next
        return removed

    def _sweep(self, asset: bytes, horizon_us: int, start: bytes, tail: Tail) -> Removal | None:
        """Remove a slice of versions, if this is an index of versions. Only the thread that writes it may call this."""
        plan = self._plans.get(asset)
        if plan is None or plan.kind is not IndexKind.VERSIONS or not tail.follows(asset):
            return None
        return sweep(self._store, asset, horizon_us, start, SWEPT_AT_ONCE)

    def erasures(self, *, pending: bool) -> list[tuple[IndexPlan, list[Erasure]]]:
        """Return the erasures of each index that is followed: those whose entries may still be there, or all others.

        Raises `UnavailableError` if the database can't be read.
        """
        plans = [s.plan for s in self._subscriptions.values() if s.plan.emits is None]
        if pending:
            return [(plan, known_erasures(self._store, plan.asset, pending=True)) for plan in plans]
        found = []
        for plan in plans:
            known = known_erasures(self._store, plan.asset)
            # The pending erasures are read after all others, so that an erasure which comes between the two reads isn't
            # taken for one whose entries are removed.
            left = known_erasures(self._store, plan.asset, pending=True)
            found.append((plan, [erasure for erasure in known if erasure not in left]))
        return found

    def remove_erased(self, plan: IndexPlan, stopping: threading.Event) -> bool:
        """Remove the entries of erased keys, also from the files; return True if everything is removed.

        This is done slice by slice, until `stopping` is set; reads hide erased keys meanwhile. Nothing is removed while
        the index isn't followed.

        Raises `UnavailableError` if the database refuses, or a secret to compare keys with erased ones is missing.
        """
        hides = self._erased.hides(plan.topic, plan.schema.keys)
        if hides is None:
            return True
        pending = known_erasures(self._store, plan.asset, pending=True)
        start, loads = b"", self._loads
        while not stopping.is_set():
            removal = self._between_batches(plan.asset, partial(self._remove, plan.asset, hides, start))
            if not removal:
                return False
            if removal.next is None:
                # A load that came in between may have brought entries which weren't examined.
                if not compact(self._store, plan.asset, stopping) or self._loads != loads:
                    return False
                mark_removed(self._store, plan.asset, pending)
                return True
            start = removal.next
        return False

    def _remove(self, asset: bytes, hides: Hides, start: bytes, tail: Tail) -> Removal | None:
        """Remove a slice of entries. Only the thread of the tail that writes the index may call this."""
        if not tail.follows(asset):
            return None
        removal = remove(self._store, asset, hides, start, SWEPT_AT_ONCE)
        tail.discard()
        return removal

    def _between_batches(self, asset: bytes, command: Callable[[Tail], T | None]) -> T | None:
        """Have the tail that follows an index execute a command; None if no tail does, or it has ended."""
        for tail in (self._live, self._behind):
            if tail.follows(asset):
                return self._done(tail, partial(command, tail))
        return None

    def advance_clock(self, asset: bytes, time_us: int, goal: Mapping[int, int]) -> "Future[bool]":
        """Have the thread that writes an index close its windows by the clock; see `Tail.advance_clock`.

        The future's result is False if that can't be done now. It never comes if the thread has ended.
        """
        for tail in (self._live, self._behind):
            if tail.follows(asset):
                return tail.do(partial(tail.advance_clock, asset, time_us, goal))
        unknown: Future[bool] = Future()
        unknown.set_result(False)
        return unknown

    def positions(self) -> list[IndexStatus]:
        """Return the progress of each index."""
        live = {subscription.plan.asset for subscription in self._live.subscriptions()}
        return [
            _status(self._live if following else self._behind, subscription, following=following)
            for asset, subscription in list(self._subscriptions.items())
            for following in (subscription.held is None and asset in live,)
        ]

    def _change(self, removed: frozenset[bytes], added: Sequence[Subscription]) -> bool:
        """Have the live tail stop reading for `removed` assets and start for `added` subscriptions."""
        self._live.do(lambda: self._live.remove(removed) and all(self._live.add(s) for s in added))
        return True

    def _leave_behind(self, subscription: Subscription) -> None:
        """Have the second tail read for a subscription that isn't as far as others of its topic."""
        self._behind.do(lambda: self._wants(subscription) and self._behind.add(subscription))

    def _take_over(self, subscription: Subscription) -> bool:
        """Hand a subscription over to the live tail, unless it is still behind. For the second tail's thread only."""
        live = self._live
        return bool(self._done(live, lambda: self._wants(subscription) and live.adopt(subscription)))

    def _done(self, tail: Tail, command: Callable[[], T]) -> T | None:
        """Have a tail execute a command, and return its result; None if the tail has ended."""
        done = tail.do(command)
        while True:
            try:
                return done.result(ANSWER_S)
            except TimeoutError:
                if not tail.is_alive():
                    return None

    def _wants(self, subscription: Subscription) -> bool:
        """Return whether a subscription is a current one; its index may have been dropped during its handover."""
        return self._subscriptions.get(subscription.plan.asset) is subscription


def merged(statuses: Sequence[IndexStatus]) -> list[IndexStatus]:
    """Return the progress of each index over several databases that have parts of it."""
    found: dict[str, IndexStatus] = {}
    for status in statuses:
        known = found.get(status.asset)
        if known is not None:
            # A database that has no partition of the topic has no offsets, and its lag is unknown. No record is missing
            # there, so the lag is left out of the sum.
            lags = [part.lag for part in (known, status) if part.offsets]
            # Databases that read the same partitions wait for the same records. So their lags aren't added, and the
            # greatest lag counts.
            total = max if known.offsets.keys() & status.offsets.keys() else sum
            status = replace(  # noqa: PLW2901 (the sum so far)
                known,
                following=known.following and status.following,
                offsets=_least(known.offsets, status.offsets),
                lag=None if None in lags else total(lag for lag in lags if lag is not None),
                written=known.written + status.written,
                unchanged=known.unchanged + status.unchanged,
                refused=known.refused + status.refused,
                newest_ingested_us=max(known.newest_ingested_us, status.newest_ingested_us),
                emitted=known.emitted + status.emitted,
                records_per_message=max(known.records_per_message, status.records_per_message),
                unsent=known.unsent or status.unsent,
                held=known.held or status.held,
            )
        found[status.asset] = status
    return list(found.values())


def left_out(statuses: Sequence[IndexStatus]) -> str:
    """Return that indexes lack records of their topics, and the remedy; "" if none does."""
    lacking = {status.dataset: status.refused for status in statuses if status.refused}
    if not lacking:
        return ""
    return (
        f"indexes left out records that they couldn't read or apply ({_listed(lacking)}); dead letters tell which and "
        "why. Once that is repaired, delete the folder `index` of the data folder, so that the server builds it anew"
    )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{dataset}: {count}" for dataset, count in sorted(counts.items()))


def _least(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    """Return the offset of each partition that both have reached, if both read it."""
    return {**one, **{partition: min(offset, one.get(partition, offset)) for partition, offset in other.items()}}


def spelled(status: IndexStatus) -> dict[str, object]:
    """Return the progress of an index as plain values."""
    return asdict(status) | {"offsets": {str(partition): offset for partition, offset in status.offsets.items()}}


def _reaches(status: IndexStatus, due: Mapping[int, int]) -> bool:
    reached = all(status.offsets.get(partition, 0) >= end for partition, end in due.items())
    # A topic that was created anew may end before these offsets. Then the index is done once it has read all of the
    # topic.
    return reached or (status.following and status.lag == 0)


def _status(tail: Tail, subscription: Subscription, *, following: bool) -> IndexStatus:
    plan, offsets = subscription.plan, dict(subscription.next)
    ends = tail.ends(plan.topic) if subscription.held is None else subscription.held
    known = bool(offsets) and offsets.keys() <= ends.keys()
    return IndexStatus(
        dataset=plan.dataset,
        topic=plan.topic,
        asset=plan.asset.hex(),
        following=following,
        offsets=offsets,
        lag=subscription.estimated(sum(max(0, ends[p] - o) for p, o in offsets.items())) if known else None,
        written=subscription.written,
        unchanged=subscription.unchanged,
        refused=subscription.refused,
        newest_ingested_us=subscription.newest_ingested_us,
        emitted=subscription.emitted,
        records_per_message=subscription.records_per_message,
        unsent=subscription.unsent,
        held=subscription.held is not None,
    )
