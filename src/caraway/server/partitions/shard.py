"""One shard of the index on this server: a database that follows some partitions of all topics."""

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from caraway.errors import UnavailableError
from caraway.index import IndexReader, IndexStatus, IndexStore, IndexWorker
from caraway.index.records.max_event_time import stored_max_event_time
from caraway.index.storage.intervals import has_max_event_time
from caraway.index.storage.rebuilding import Rebuilding
from caraway.index.storage.snapshots import SnapshotKeeper, Snapshots
from caraway.index.storage.store import CACHE_BYTES
from caraway.index.windows.windows import Elsewhere
from caraway.objects import ObjectFolder
from caraway.plan.model import IndexPlan
from caraway.server.partitions.topics import Ends, Topics
from caraway.state.index_owners import ShardProgress
from caraway.topics import ErasedKeys

# All shards of a server together have as much as an undivided index; each needs some.
MIN_CACHE_BYTES = 8 << 20
STOP_S = 3.0


class Shard(Protocol):
    """What a server needs of a shard that it has or is about to have (`StoredShard`)."""

    def follow(self, plans: Sequence[IndexPlan]) -> None:
        """Index these from now on, and no others."""
        ...

    def reconcile(self) -> None:
        """Look how far the indexes are."""
        ...

    def is_caught_up(self) -> bool:
        """Tell whether all indexes have been as far as their topics since this began."""
        ...

    def ends(self) -> Ends:
        """Return where the topics end now."""
        ...

    def has_reached(self, ends: Ends) -> bool:
        """Tell whether the indexes are as far as that."""
        ...

    def read(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]:
        """Read; see `IndexReader.read`."""
        ...

    def is_filled(self, asset: bytes) -> bool:
        """Tell whether an index has been as far as its topic since this began."""
        ...

    def max_event_time(self, asset: bytes) -> int | None:
        """Return the greatest event time of an index in this shard."""
        ...

    def progress(self) -> Mapping[str, ShardProgress]:
        """Tell how far each index is, by asset as text."""
        ...

    def close(self, *, forget: bool) -> None:
        """End; `forget`: with all that is on disk."""
        ...


class StoredShard:
    """A shard in a folder of its own, from a snapshot if the folder isn't there."""

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
    ) -> None:
        """Open the database, and begin to follow topics as soon as `follow` names some.

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
        self.worker = IndexWorker(topics.bootstrap_servers, self.store, erased, holds=self._belongs)
        self._reader = IndexReader(self.store, elsewhere=elsewhere)
        self._rebuilding = Rebuilding(self.worker, self.store)
        self._keeper = SnapshotKeeper(snapshots, self.store, snapshot_seconds) if snapshot_seconds else None
        self._lock = threading.Lock()
        self._plans: dict[bytes, IndexPlan] = {}
        self._filled: set[bytes] = set()
        # Where the topics of indexes ended that have still to get there.
        self._due: dict[bytes, Mapping[int, int]] = {}
        self.worker.start()
        self._rebuilding.start()
        if self._keeper is not None:
            self._keeper.start()

    def follow(self, plans: Sequence[IndexPlan]) -> None:
        """Index these from now on, and no others."""
        with self._lock:
            self._plans = {plan.asset: plan for plan in plans}
            self._filled &= self._plans.keys()
            self._due = {asset: due for asset, due in self._due.items() if asset in self._plans}
        self.worker.set_plans(plans)

    def reconcile(self) -> None:
        """Look how far the indexes are.

        Raises:
            UnavailableError: Kafka doesn't answer.
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
        """Tell whether all indexes have been as far as their topics since this began; those that have a topic."""
        with self._lock:
            return all(
                asset in self._filled or (asset not in self._due and self._topics.partitions(plan.topic) is None)
                for asset, plan in self._plans.items()
            )

    def ends(self) -> Ends:
        """Return where the topics end now.

        Raises:
            UnavailableError: Kafka doesn't answer.
        """
        with self._lock:
            plans = list(self._plans.values())
        return self._ends(plans)

    def has_reached(self, ends: Ends) -> bool:
        """Tell whether the indexes are as far as that."""
        positions = self._positions()
        with self._lock:
            plans = list(self._plans.values())
        return all(plan.topic not in ends or _is_at(positions.get(plan.asset), ends[plan.topic]) for plan in plans)

    def read(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]:
        """Read; see `IndexReader.read`."""
        return self._reader.read(plan, keys, at_us, columns)

    def is_filled(self, asset: bytes) -> bool:
        """Tell whether an index has been as far as its topic since this began."""
        return asset in self._filled

    def max_event_time(self, asset: bytes) -> int | None:
        """Return the greatest event time of an index in this shard.

        Raises:
            UnavailableError: The database can't be read.
        """
        try:
            return stored_max_event_time(self.store, asset)
        except Exception as error:
            # What RocksDB raises is an Exception and nothing more special.
            raise UnavailableError(f"the index can't be read: {error}") from error

    def progress(self) -> Mapping[str, ShardProgress]:
        """Tell how far each index is, by asset as text.

        Raises:
            UnavailableError: The database can't be read, or is being built anew.
        """
        if self.store.refusing:
            raise UnavailableError("the index was damaged and isn't built anew yet")
        with self._lock:
            plans, filled = list(self._plans.values()), set(self._filled)
        return {
            plan.asset.hex(): ShardProgress(
                caught_up=plan.asset in filled,
                max_event_time_us=self.max_event_time(plan.asset) if has_max_event_time(plan) else None,
            )
            for plan in plans
        }

    def problem(self) -> str | None:
        """Tell why nobody can read; None if everybody can."""
        if (reason := self._rebuilding.problem()) is not None:
            return reason
        return None if self.worker.is_alive() else "its worker has ended; the log tells why"

    def close(self, *, forget: bool) -> None:
        """End; `forget`: with all that is on disk."""
        if self._keeper is not None:
            self._keeper.stop(STOP_S)
        self._rebuilding.stop(STOP_S)
        self.worker.stop()
        self.store.close()
        if forget:
            shutil.rmtree(self.store.path, ignore_errors=True)

    def _positions(self) -> dict[bytes, IndexStatus]:
        return {bytes.fromhex(status.asset): status for status in self.worker.positions()}

    def _ends(self, plans: Sequence[IndexPlan]) -> Ends:
        return self._topics.ends({plan.topic for plan in plans}, self._belongs)


def _is_at(status: IndexStatus | None, due: Mapping[int, int]) -> bool:
    return status is not None and all(status.offsets.get(partition, 0) >= end for partition, end in due.items())
