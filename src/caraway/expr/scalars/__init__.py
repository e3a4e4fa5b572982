"""Expressions as plain Python functions of one row: what polars gives, without its price for a single row."""
