"""The HTTP server: ingest, query and control, in one process or several (`python -m caraway.apps.server`)."""
