"""Traces of sampled requests: one query with its parts, and one event from its acceptance until it is readable."""
