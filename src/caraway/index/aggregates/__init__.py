"""Partial aggregates: what a tile holds, how rows enter it, how results come out of it."""
