"""Checks of a whole graph before it is committed: one module for each part of a graph."""
