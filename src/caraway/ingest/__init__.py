"""Ingestion: the rows of a request become durable records, and each row that doesn't fit gets a message."""

from caraway.ingest.endpoints import Endpoints
from caraway.ingest.requests import RequestKey
from caraway.ingest.service import IngestReport, IngestService
from caraway.ingest.targets import RowError
from caraway.topics import DEAD_LETTERS

__all__ = ["DEAD_LETTERS", "Endpoints", "IngestReport", "IngestService", "RequestKey", "RowError"]
