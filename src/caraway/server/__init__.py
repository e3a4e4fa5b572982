"""The HTTP server: ingest, query and control in one process (`python -m caraway.server`)."""
