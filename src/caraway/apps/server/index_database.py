"""A database of the index of a server, with the threads that fill it and copy it."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import structlog

from caraway.dataplane.index.feeding.worker import IndexWorker
from caraway.dataplane.index.storage.snapshots import SnapshotKeeper
from caraway.dataplane.index.storage.store import IndexStore

LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDatabase:
    """An open database, which has whole indexes, or a shard of each index.

    Attributes:
        store: The entries.
        worker: Fills the store from topics.
        keeper: Takes snapshots of the store; None if there are none.
        shard: The number of the shard, and the number of all shards; None for the database of whole indexes.
    """

    store: IndexStore
    worker: IndexWorker
    keeper: SnapshotKeeper | None
    shard: tuple[int, int] | None = None

    def drop(self, unneeded: AbstractSet[bytes]) -> set[bytes]:
        """Remove the entries of some indexes, and return the indexes that had any."""
        found = self.store.assets() & unneeded
        for asset in found:
            self.store.drop(asset)
            LOG.info("forgot an index", asset=asset.hex())
        return found
