"""Features as of many times at once, over whole histories.

Queries of a server read one key after another from the index. Here, all rows of a history and all times of a query are
sorted once, and each aggregate is computed for all of them by operations on columns.
"""
