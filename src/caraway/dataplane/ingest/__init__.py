"""Ingestion: the rows of a request become durable records, and each row that doesn't fit gets a message."""
