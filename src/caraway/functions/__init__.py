"""Users' functions: how they are captured, traced to expressions, confined, and run.

`capture`, `tracing` and `confinement` are light: they know neither queries nor Spark. `extractors` runs functions of
featuresets for queries, `pipelines` those of datasets in Spark's workers, and `sources` those of preproc and where in
servers.
"""
