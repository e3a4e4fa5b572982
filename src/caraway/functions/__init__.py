"""Users' functions: how they are captured, traced to expressions, confined, and run.

`capture`, `tracing` and `confinement` import neither queries nor Spark. `extractors` runs functions of featuresets for
queries. `pipelines` runs functions of datasets, beside Spark's Python workers. `sources` runs the functions that
definitions give as `preproc` and `where` of a source, in servers.
"""
