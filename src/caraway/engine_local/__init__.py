"""The in-process engine, which computes all datasets of a branch in memory; the other engines are tested against it."""

from caraway.engine_local.changes import SourceChange
from caraway.engine_local.engine import LocalEngine

__all__ = ["LocalEngine", "SourceChange"]
