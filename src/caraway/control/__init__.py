"""The only way to change a deployment: commits, and the branches on which they are made."""

from caraway.control.model import CommitOutcome
from caraway.control.reconciler import Control, LedgerReconciler
from caraway.control.service import CommitService

__all__ = ["CommitOutcome", "CommitService", "Control", "LedgerReconciler"]
