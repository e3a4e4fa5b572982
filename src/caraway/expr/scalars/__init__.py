"""The compiler of expressions to plain Python functions of one row, which cost less than polars for few rows."""
