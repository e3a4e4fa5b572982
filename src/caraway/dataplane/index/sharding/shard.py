"""One shard of the index on this server: a database that follows some partitions of all topics."""

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from caraway.dataplane.index.feeding.tail import PastOf
from caraway.dataplane.index.feeding.worker import IndexStatus, IndexWorker
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.records.closing_time import stored_closing_time
from caraway.dataplane.index.sharding.topics import Ends, Topics
from caraway.dataplane.index.storage.intervals import has_max_event_time
from caraway.dataplane.index.storage.snapshots import SnapshotKeeper, Snapshots
from caraway.dataplane.index.storage.store import CACHE_BYTES, IndexStore
from caraway.dataplane.index.windows.windows import Elsewhere
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.errors import UnavailableError
from caraway.graph.plan.model import IndexPlan
from caraway.state.losses import Loss
from caraway.state.ownership.shards import ShardProgress

# A shard's block cache has at least this many bytes. The shards share the cache size of an undivided index, and if they
# are many, each share would be too small.
MIN_CACHE_BYTES = 8 << 20
STOP_S = 3.0


class Shard:
    """A shard in a folder of its own, which is restored from a snapshot if the folder doesn't exist."""

    def __init__(
        self,
        number: int,
        shards: int,
        folder: Path,
        topics: Topics,
        *,
        objects: ObjectFolder,
        snapshot_seconds: float,
        erased: ErasedKeys,
        elsewhere: Elsewhere,
        past_of: PastOf,
        note_loss: Callable[[Loss], object],
    ) -> None:
        """Open the database; no topic is followed before a call of `follow`.

        Raises:
            ConflictError: Another process has the database open.
            UnavailableError: The folder can't be used.
        """
        self._topics = topics
        self._belongs: Callable[[int], bool] = lambda partition: partition % shards == number
        snapshots = Snapshots(objects, part=f"index-shards/{number}-of-{shards}")
        self.store = IndexStore(
            folder, cache_bytes=max(MIN_CACHE_BYTES, CACHE_BYTES // shards), restore=snapshots.restore
        )
        self.worker = IndexWorker(
            topics.bootstrap_servers, self.store, erased, holds=self._belongs, past_of=past_of, note_loss=note_loss
        )
        self.reader = IndexReader(self.store, elsewhere=elsewhere)
        self.keeper = SnapshotKeeper(snapshots, self.store, snapshot_seconds) if snapshot_seconds else None
        self._lock = threading.Lock()
        self._plans: dict[bytes, IndexPlan] = {}
        self._filled: set[bytes] = set()
        # For each index (by asset) that hasn't caught up yet: the end offset that each partition of its topic had when
        # the shard saw the index for the first time. An index that has reached them is removed from here.
        self._due: dict[bytes, Mapping[int, int]] = {}
        self.worker.start()
        if self.keeper is not None:
            self.keeper.start()

    def follow(self, plans: Sequence[IndexPlan]) -> None:
        """Index these from now on, and no others."""
        with self._lock:
            self._plans = {plan.asset: plan for plan in plans}
            self._filled &= self._plans.keys()
            self._due = {asset: due for asset, due in self._due.items() if asset in self._plans}
        self.worker.set_plans(plans)

    def reconcile(self) -> None:
        """Note which indexes have reached the ends of their topics.

        Raises `UnavailableError` if Kafka doesn't answer.
        """
        positions = self._positions()
        with self._lock:
            plans = [plan for asset, plan in self._plans.items() if asset not in self._filled]
            new = [plan for plan in plans if plan.asset not in self._due]
        if not plans:
            return
        ends = self._ends(new)
        with self._lock:
            for plan in new:
                if plan.topic in ends and plan.asset in self._plans:
                    self._due[plan.asset] = ends[plan.topic]
            for asset, due in list(self._due.items()):
                if _is_at(positions.get(asset), due):
                    self._filled.add(asset)
                    del self._due[asset]

    def is_caught_up(self) -> bool:
        """Return whether each index that has a topic reached the end of it since this shard was opened."""
        with self._lock:
            return all(
                asset in self._filled or (asset not in self._due and self._topics.partitions(plan.topic) is None)
                for asset, plan in self._plans.items()
            )

    def ends(self) -> Ends:
        """Return the current ends of the topics. Raises `UnavailableError` if Kafka doesn't answer."""
        with self._lock:
            plans = list(self._plans.values())
        return self._ends(plans)

    def has_reached(self, ends: Ends) -> bool:
        """Return whether the indexes have reached these ends."""
        positions = self._positions()
        with self._lock:
            plans = list(self._plans.values())
        return all(plan.topic not in ends or _is_at(positions.get(plan.asset), ends[plan.topic]) for plan in plans)

    def is_filled(self, asset: bytes) -> bool:
        """Return whether an index has reached the end that its topic had when the shard was opened."""
        return asset in self._filled

    def closing_time(self, asset: bytes) -> int | None:
        """Return the closing time of an index in this shard.

        Raises `UnavailableError` if the database can't be read.
        """
        return stored_closing_time(self.store, asset)

    def progress(self) -> Mapping[str, ShardProgress]:
        """Return the progress of each index, by asset as text.

        Raises `UnavailableError` if the database can't be read, or is being built anew.
        """
        if self.store.refusing:
            raise UnavailableError("the index was damaged and isn't built anew yet")
        with self._lock:
            plans, filled = list(self._plans.values()), set(self._filled)
        return {
            plan.asset.hex(): ShardProgress(
                caught_up=plan.asset in filled,
                closing_us=self.closing_time(plan.asset) if has_max_event_time(plan) else None,
            )
            for plan in plans
        }

    def close(self, *, forget: bool) -> None:
        """Close the database; with `forget` its files are removed."""
        if self.keeper is not None:
            self.keeper.stop(STOP_S)
        self.worker.stop()
        self.store.close()
        if forget:
            shutil.rmtree(self.store.path, ignore_errors=True)

    def _positions(self) -> dict[bytes, IndexStatus]:
        return {bytes.fromhex(status.asset): status for status in self.worker.positions()}

    def _ends(self, plans: Sequence[IndexPlan]) -> Ends:
        """Return the ends of the partitions that the shard reads: all of those from which it takes keys by itself."""
        return self._topics.ends({plan.topic for plan in plans}, self._belongs)


def _is_at(status: IndexStatus | None, due: Mapping[int, int]) -> bool:
    return status is not None and all(status.offsets.get(partition, 0) >= end for partition, end in due.items())
