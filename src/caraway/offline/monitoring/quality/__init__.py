"""The quality watch: the rows of datasets are checked against their expectations (docs/guides/monitoring.md).

`deltas` makes rows of the messages of a topic, each once; `follower` checks and counts them; `store` keeps the counts
in Postgres, and `archiving` writes them to a table of the archive; `watching` finds which expectations are violated,
and tells others.
"""
