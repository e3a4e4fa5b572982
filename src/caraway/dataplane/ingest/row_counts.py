"""The counts of what became of rows, from which the metrics of sources are made."""

from collections import Counter
from dataclasses import dataclass, field

from caraway.compute.rows.batches import LeftOut, Stage


@dataclass(slots=True)
class RowCounts:
    """The fates of some rows, for one dataset. Each row that was read is counted in exactly one of the other counts.

    Attributes:
        read: The rows that were read.
        admitted: Those that became records. The rows of erased keys are counted among them, so that a sender can't
            find out which keys were erased.
        duplicates: Those that were read again after a crash, or sent again, and that were written before.
        refused: Those that became dead letters, by the stage at which they failed.
        left_out: Those that the source leaves out, by the reason.
    """

    read: int = 0
    admitted: int = 0
    duplicates: int = 0
    refused: Counter[Stage] = field(default_factory=Counter)
    left_out: Counter[LeftOut] = field(default_factory=Counter)

    def add(self, other: "RowCounts") -> None:
        """Add the counts of other rows."""
        self.read += other.read
        self.admitted += other.admitted
        self.duplicates += other.duplicates
        self.refused.update(other.refused)
        self.left_out.update(other.left_out)
