"""Operators of pipelines as pure functions of tables."""
