"""Expressions as plain Python functions of one row, with polars's results but without its cost for a single row."""
