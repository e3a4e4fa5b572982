"""Partial aggregates: the content of tiles, how rows are added to them, and how results are computed from them."""
