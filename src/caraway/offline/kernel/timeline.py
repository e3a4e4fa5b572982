"""Rows of groups in order of time, and where times stand among them."""

import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]

# Look-ups are sorted first if there are at least this many. For fewer, sorting takes longer than it saves.
MANY = 1_000
INT64_BITS = 63


class Timeline:
    """The rows of some groups, in the order of groups, and of time in each group."""

    def __init__(self, groups: Ints, times: Ints, count: int, order: pl.Series | None = None) -> None:
        """Sort rows.

        Args:
            groups: The number of each row's group.
            times: The time of each row, in microseconds.
            count: How many groups there are; they are numbered from 0 on.
            order: The order of rows of one group and time; none if it isn't given.
        """
        # A row's group and time become one number of 64 bits, by which rows are sorted and found. The number contains
        # the time itself, or the time's rank among all times if the numbers would be too great otherwise.
        self._first = int(times.min()) if len(times) else 0
        self._span = (int(times.max()) if len(times) else 0) - self._first + 1
        self._known: Ints | None = None
        if (count * self._span).bit_length() > INT64_BITS:
            self._known = pl.Series(times).unique().sort().to_numpy().astype(np.int64, copy=False)
            self._span = len(self._known)
        joint = groups * self._span + self._offsets(times, ends=False)
        self.places: Ints = pl.Series(joint).arg_sort().to_numpy().astype(np.int64, copy=False)
        """The positions of the given rows, sorted."""
        self._joint: Ints = joint[self.places]
        if order is not None:
            self._sort_ties(order)
        self.begins: Ints = np.searchsorted(self._joint, np.arange(count + 1) * self._span).astype(np.int64, copy=False)
        """The position of each group's first row among the sorted ones, and the number of all rows behind them."""

    def up_to(self, groups: Ints, times: Ints) -> Ints:
        """Return, for each group and time, the position behind the group's last row at or before that time.

        The position is one among the sorted rows; it is that of the group's first row if it has no such row.
        """
        asked = groups * self._span + self._offsets(times, ends=True)
        if len(asked) < MANY or bool(np.all(asked[1:] >= asked[:-1])):
            return np.searchsorted(self._joint, asked, side="right").astype(np.int64, copy=False)
        # In sorted order, two numbers that are looked up one after the other are close together in memory, so the
        # search takes a tenth of the time.
        order = pl.Series(asked).arg_sort().to_numpy()
        found = np.empty(len(asked), np.int64)
        found[order] = np.searchsorted(self._joint, asked[order], side="right")
        return found

    def _offsets(self, times: Ints, *, ends: bool) -> Ints:
        """Return times as numbers from 0 on; with `ends` the last one that isn't later, which may be -1."""
        if self._known is not None:
            return np.searchsorted(self._known, times, side="right").astype(np.int64, copy=False) - 1
        if not ends:
            return times - self._first
        return np.clip(times, self._first - 1, self._first + self._span - 1) - self._first

    def _sort_ties(self, order: pl.Series) -> None:
        same = self._joint[1:] == self._joint[:-1]
        if not same.any():
            return
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        # Rows of one group and time are adjacent, so sorting the tied ones among themselves leaves all others in place.
        among = pl.DataFrame({"joint": self._joint[tied], "order": order.gather(self.places[tied])})
        places = self.places.copy()
        places[tied] = places[tied][among.select(pl.arg_sort_by("joint", "order")).to_series().to_numpy()]
        self.places = places
