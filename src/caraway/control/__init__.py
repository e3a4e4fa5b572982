"""The only way to change a Caraway: commits, and the branches that they are made on."""

from caraway.control.model import CommitResult
from caraway.control.service import CommitService
from caraway.control.site import Control, Site

__all__ = ["CommitResult", "CommitService", "Control", "Site"]
