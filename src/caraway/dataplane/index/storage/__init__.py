"""The database: keys, entries, snapshots, and other processes that read it."""
