"""The only way to change a Caraway: commits."""

from caraway.control.model import CommitResult
from caraway.control.service import CommitService

__all__ = ["CommitResult", "CommitService"]
