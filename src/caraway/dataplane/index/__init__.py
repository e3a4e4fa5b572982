"""The index: rows and exact windows as of any time, in RocksDB, fed from topics (docs/inside/rocksdb_index.md)."""
