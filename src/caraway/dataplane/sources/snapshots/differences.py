"""The rows that a snapshot has really removed and added, if it has written files anew.

A writer that changes one row of a file writes all its rows to a new one (copy-on-write). Rows that are in both, as
often in one as in the other, didn't change. The first ones among equal rows are taken to be the same.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from caraway.dataplane.sources.snapshots.digests import digests, key_digests
from caraway.dataplane.sources.snapshots.rows import BEGIN_ANEW, Rows
from caraway.errors import UnavailableError

# At most this many different rows that a snapshot has removed, and as many keys of rows that it has added, are held for
# the comparison. Each takes some 150 bytes.
MAX_ROWS = 5_000_000

# A function that gets all rows of one side (removed or added) in their order, some at a time, and returns a mask of
# numpy for those that changed.
Changed = Callable[[Rows], Any]


class Differences:
    """The rows of one snapshot that are in both of the files that it removed, and of those that it added."""

    def __init__(self, gone: Iterable[Rows], there: Iterable[Rows], keys: Sequence[str], where: str) -> None:
        """Read all of them.

        Args:
            gone: The rows of the files that were removed, with all columns.
            there: Those of the files that were added.
            keys: The columns of the key, for rows that were changed; empty if there is none.
            where: The table and the snapshot, for people.

        Raises:
            UnavailableError: There are too many.
        """
        removed: Counter[bytes] = Counter()
        for rows in gone:
            removed.update(digests(rows.batch))
            self._check(len(removed), where)
        both: Counter[bytes] = Counter()
        self._columns = keys
        # The digests of the keys of the rows that were added.
        self._keys: set[bytes] = set()
        for rows in there:
            both.update(digest for digest in digests(rows.batch) if digest in removed)
            if keys:
                self._keys.update(key_digests(rows.batch, keys))
                self._check(len(self._keys), where)
        self._both = both & removed
        self.is_empty = not self._both
        """True if no row is in both."""

    def side(self) -> Changed:
        """Return a function that tells which rows aren't in both, for all rows of one side in their order."""
        left = Counter(self._both)

        def changed(rows: Rows) -> Any:
            mask = np.ones(len(rows.numbers), bool)
            for at, digest in enumerate(digests(rows.batch)):
                if digest in left and left[digest] > 0:
                    left[digest] -= 1
                    mask[at] = False
            return mask

        return changed

    def replaced(self, rows: Rows) -> Any:
        """Return for which rows one with the same key was added, in a mask of numpy."""
        there = self._keys
        return np.fromiter((key in there for key in key_digests(rows.batch, self._columns)), bool, len(rows.numbers))

    @staticmethod
    def _check(count: int, where: str) -> None:
        if count > MAX_ROWS:
            raise UnavailableError(f"{where} changes more than {MAX_ROWS:,} rows, which aren't compared; {BEGIN_ANEW}")
