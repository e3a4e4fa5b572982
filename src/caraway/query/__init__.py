"""Queries: from features that are wanted and features that are given to values."""

from caraway.query.catalog import Catalog
from caraway.query.executor import Answer, CompiledPlan, QueryEngine, parse_instants
from caraway.query.model import Reader

__all__ = ["Answer", "Catalog", "CompiledPlan", "QueryEngine", "Reader", "parse_instants"]
