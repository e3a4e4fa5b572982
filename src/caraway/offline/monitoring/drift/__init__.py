"""The drift watch: features that were served are profiled by the hour, and compared with a reference (docs/drift.md).

`profiling` makes profiles of the rows of the table of served features, and `watch` does so again and again, and records
how the features of each branch compare with their references. `alerting` tells others of features that have drifted.
"""
