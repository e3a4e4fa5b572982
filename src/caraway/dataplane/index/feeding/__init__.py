"""Feeding the index from topics, and sending the rows of its aggregates to the jobs that read them."""
