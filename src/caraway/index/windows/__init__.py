"""Aggregates over windows of any length, as of any time, out of the tile pyramid."""
