"""The index: rows and exact windowed aggregates as of any time, in RocksDB, fed from topics (docs/rocksdb_index.md)."""
