"""The index: rows and exact windowed aggregates as of any time, in RocksDB, fed from topics (docs/index.md)."""

from caraway.index.feeding.worker import IndexStatus, IndexWorker
from caraway.index.feeding.writer import IndexWriter
from caraway.index.reader import IndexReader
from caraway.index.storage.follower import IndexFollower
from caraway.index.storage.store import IndexStore

__all__ = ["IndexFollower", "IndexReader", "IndexStatus", "IndexStore", "IndexWorker", "IndexWriter"]
