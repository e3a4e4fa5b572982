"""Simple functions of users as expressions, which need no Python where they run.

A function is called once with stand-ins that record what is done to its columns: `frames` for those of pipelines, which
then run in Spark's real-time mode, `extractors` for those of featuresets, which then need no process of their own.
"""
