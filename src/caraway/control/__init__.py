"""The only way to change a Caraway: commits, and the branches that they are made on."""

from caraway.control.model import CommitOutcome
from caraway.control.reconciler import Control, LedgerReconciler
from caraway.control.service import CommitService

__all__ = ["CommitOutcome", "CommitService", "Control", "LedgerReconciler"]
