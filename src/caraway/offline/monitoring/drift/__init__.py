"""The drift watch: served features are profiled by the hour, and compared with a reference (docs/guides/monitoring.md).

`profiling` makes profiles of the rows of the table of served features, and `watch` does so again and again, and records
how the features of each branch compare with their references. `alerting` tells others of features that have drifted.
"""
