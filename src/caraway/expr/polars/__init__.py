"""Expressions as polars expressions: the read path, and the oracle for other compilers."""
