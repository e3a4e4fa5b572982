"""The archive: the records of each topic in a Delta table, which other programs can read in place (docs/archive.md).

`columns` makes Arrow columns of records, `tables` writes them together with the offsets behind them, `follower` reads
topics and decides when to write, and `archiver` divides the topics among the processes that archive.
"""
