"""Aggregates over windows, computed from the single rows in the window."""
