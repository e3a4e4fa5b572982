"""Definitions as values: specs, schemas, checks, and their form on the wire."""
