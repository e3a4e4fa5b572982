"""Users' functions: how they are captured, traced to expressions, confined, and run for queries and pipelines.

`capture`, `tracing` and `confinement` are light: they know neither queries nor Spark. `extractors` runs functions of
featuresets for queries, and `pipelines` those of datasets in Spark's workers.
"""
