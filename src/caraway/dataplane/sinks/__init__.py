"""Sinks: the changes of a dataset, from its topic to a system outside, by a worker for each sink."""
