"""Features as of many times at once, over whole histories.

Queries of a server read one key after another from the index. Here, all records of a history and all times of a query
are sorted once, and values are computed for all of them by operations on columns.
"""
