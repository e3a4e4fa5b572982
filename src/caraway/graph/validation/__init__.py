"""Checks of a whole graph before it is committed: one module for each part of a graph."""

from caraway.graph.validation.graphs import validate, validate_placement

__all__ = ["validate", "validate_placement"]
