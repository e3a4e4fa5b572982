"""The background work of a server: archiving, erasing, expiring, writing rows of aggregates."""
