"""Pipelines as streaming jobs: Spark, the engine that runs the jobs, and the Java that both need."""
