"""Expectations of datasets, computed: which rows of a batch are as expected, counts of them, and what follows of these.

`predicates` has the meaning of each check, row by row. `columns` computes the frequent ones for whole columns, `suite`
all checks of a dataset. `strict` finds the rows that a dataset refuses. `counts` adds up by windows of event time, and
`report` says whether a dataset is as expected. The engine in process, the server and the process that follows topics
(`caraway.offline.monitoring.quality`) use the same code.
"""
