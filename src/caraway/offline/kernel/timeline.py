"""Rows of groups in order of time, and where times stand among them."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

MANY = 10_000


class Timeline:
    """The rows of some groups, in the order of groups, and of time in each group."""

    def __init__(self, groups: Ints, times: Ints, count: int) -> None:
        """Take rows that are sorted by group, then by time.

        Args:
            groups: The number of each row's group.
            times: The time of each row, in microseconds.
            count: How many groups there are; they are numbered from 0 on.
        """
        self._times = times
        self.begins: Ints = np.searchsorted(groups, np.arange(count + 1)).astype(np.int64, copy=False)
        """The position of each group's first row, and the number of all rows behind them."""

    def up_to(self, groups: Ints, times: Ints) -> Ints:
        """Return, for each group and time, the position behind the group's last row at or before that time.

        The position is that of the group's first row if it has no such row.
        """
        # Many pairs are looked up in order. The rows that are looked at one after the other are then close together,
        # which takes a third of the time.
        if len(groups) < MANY or bool(np.all(np.diff(groups) >= 0)):
            return self._up_to(groups, times)
        order = np.lexsort((times, groups))
        found = np.empty(len(groups), np.int64)
        found[order] = self._up_to(groups[order], times[order])
        return found

    def _up_to(self, groups: Ints, times: Ints) -> Ints:
        # This is a binary search for all pairs at once. The position is never before `low` nor behind `high`.
        low, high = self.begins[groups], self.begins[groups + 1]
        while (open_ := low < high).any():
            middle = (low + high) >> 1
            # A pair that is found already looks at any row; its bounds stay as they are.
            before = open_ & (self._times[np.where(open_, middle, 0)] <= times)
            low = np.where(before, middle + 1, low)
            high = np.where(open_ & ~before, middle, high)
        return low
