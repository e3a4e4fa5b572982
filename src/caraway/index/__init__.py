"""The index: rows and exact windowed aggregates as of any time, in RocksDB, fed from topics (docs/index.md)."""

from caraway.index.follower import IndexFollower
from caraway.index.reader import IndexReader
from caraway.index.store import IndexStore
from caraway.index.worker import IndexStatus, IndexWorker
from caraway.index.writer import IndexWriter

__all__ = ["IndexFollower", "IndexReader", "IndexStatus", "IndexStore", "IndexWorker", "IndexWriter"]
