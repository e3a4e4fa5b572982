"""Profiles of columns, which can be merged, and the distances between two of them (docs/guides/monitoring.md)."""
