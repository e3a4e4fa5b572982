"""The skew watch: served features are computed again from the archive, and compared (docs/guides/monitoring.md).

`sampling` takes rows out of the table of served features, `recomputing` computes their features, `reasons` explains
values that differ, and `watch` does all of this again and again, and records what it found.
"""
