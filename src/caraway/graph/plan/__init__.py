"""The physical plan of a graph: the topics, jobs and indexes that it needs."""
