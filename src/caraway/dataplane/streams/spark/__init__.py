"""Spark sessions, and the compilation of expressions, steps and jobs to DataFrames."""
