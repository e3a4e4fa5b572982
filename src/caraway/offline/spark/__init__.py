"""Offline queries on Spark: rows and records are divided by key, and each division is evaluated as in process."""
