"""The archive: the records of each topic in a Delta table, which other programs can read (docs/inside/archive.md).

`store` has the tables: it writes records to them together with the offsets behind them, and reads them. `follower`
reads topics and decides when to write, `trimming` removes from topics what is archived, and `archiver` divides the
topics among the processes that archive.
"""
