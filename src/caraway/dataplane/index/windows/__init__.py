"""Aggregates over windows of any length as of any time, computed from the tile pyramid."""
