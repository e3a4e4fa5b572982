"""The in-process engine: all datasets of a branch in memory, plainly computed; the truth for the other engines."""

from caraway.engine_local.changes import SourceChange
from caraway.engine_local.engine import LocalEngine

__all__ = ["LocalEngine", "SourceChange"]
