"""Tracing of simple functions of users to expressions, which need no Python where they run.

A function is called once with stand-ins that record the operations on its columns: `frames` traces functions of
pipelines, which then run in Spark's real-time mode, and `extractors` those of featuresets, which then need no process
of their own.
"""
