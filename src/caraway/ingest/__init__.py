"""Ingestion: from the rows of a request to durable records, with a word on every row that doesn't fit."""

from caraway.ingest.endpoints import Endpoints, RowError
from caraway.ingest.requests import RequestKey
from caraway.ingest.service import IngestReport, IngestService
from caraway.topics import DEAD_LETTERS

__all__ = ["DEAD_LETTERS", "Endpoints", "IngestReport", "IngestService", "RequestKey", "RowError"]
