"""Extractors run in processes of their own for queries, or as expressions where tracing has found equal ones."""
