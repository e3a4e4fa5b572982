"""Aggregate inputs in blocks on the disk, and the values of intervals of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from caraway.dataplane.index.aggregates.columns import Family, family_of
from caraway.dtypes.types import DataType
from caraway.offline.history.inputs import lives, numbers_of
from caraway.offline.history.intervals import NumberIntervals, SortedRows, WindowInputs
from caraway.offline.history.records import END, TIME
from caraway.offline.kernel.block_sums import BlockCounts, BlockExtremes, BlockSums
from caraway.offline.kernel.blocks import AT, GROUP, Blocks, BlockSizes, sorted_blocks
from caraway.offline.kernel.extremes import worst

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]

WEIGHT = "record weight"


class BlockColumn(NumberIntervals):
    """A column of numbers. Its intervals of values are those of rows, in which a null counts for nothing."""

    def __init__(self, blocks: Blocks, name: str, dtype: DataType, *, weighted: bool) -> None:
        """Take a column of blocks, whose rows have weights if they are `weighted`.

        Raises `OverflowError` if a decimal has more units than 64 bits hold.
        """
        self.family, self.unit = family_of(dtype)
        self._blocks = blocks
        self._name = name
        self._weighted = weighted
        self._dtype: np.dtype[Any] = np.dtype(np.float64 if self.family is Family.FLOAT else np.int64)
        self._counted = BlockCounts(blocks, self._weights)

    def between(self, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        """Return the intervals themselves."""
        return first, last

    def counts(self, first: Ints, last: Ints) -> Ints:
        """Return how many values count in intervals."""
        return self._counted.between(first, last)

    @cached_property
    def sums(self) -> BlockSums:
        """The sums of intervals of values."""
        return BlockSums(self._blocks, self._column, squares=False)

    @cached_property
    def squares(self) -> BlockSums:
        """The sums of intervals of values and of their squares."""
        return BlockSums(self._blocks, self._column, squares=True)

    def extremes(self, first: Ints, last: Ints, *, greatest: bool) -> Numbers:
        """Return the extremes of intervals of values that aren't empty; NaN is greater than all numbers."""
        found = (self._greatest if greatest else self._least).between(first, last)
        if self.family is not Family.FLOAT:
            return found
        numbers = self._numbers.between(first, last)
        # NaN counts as greater than all numbers, so the least value is NaN only if all values are.
        is_nan = numbers < self.counts(first, last) if greatest else numbers == 0
        # The result must not depend on the order of the equal values -0.0 and 0.0, so -0.0 becomes 0.0.
        return np.where(is_nan, np.nan, found + 0.0)

    @cached_property
    def _numbers(self) -> BlockCounts:
        return BlockCounts(self._blocks, lambda number: self._is_number(number).astype(np.int64))

    @cached_property
    def _least(self) -> BlockExtremes:
        return BlockExtremes(self._blocks, partial(self._filled, greatest=False), self._dtype, greatest=False)

    @cached_property
    def _greatest(self) -> BlockExtremes:
        return BlockExtremes(self._blocks, partial(self._filled, greatest=True), self._dtype, greatest=True)

    def _is_number(self, number: int) -> npt.NDArray[np.bool_]:
        values, known = self._values(number)
        return known & ~np.isnan(values) if self.family is Family.FLOAT else known

    def _filled(self, number: int, *, greatest: bool) -> Numbers:
        """Return the values of a block, in which the value that no other is worse than stands for null and NaN."""
        values, _ = self._values(number)
        return np.where(self._is_number(number), values, worst(self._dtype, greatest=greatest))

    def _column(self, number: int) -> tuple[Numbers, Ints]:
        return self._values(number)[0], self._weights(number)

    def _values(self, number: int) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Return the values of a block, zero for null, and which aren't null."""
        return self._blocks.cache.get(
            (self, number), partial(self._read, number), lambda made: made[0].nbytes + made[1].nbytes
        )

    def _read(self, number: int) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        series = self._blocks.frame(number, [self._name])[self._name]
        known = series.is_not_null().to_numpy()
        values = np.zeros(len(series), self._dtype)
        if self.family is not Family.ANY:
            values[known] = numbers_of(self.family, series.drop_nulls())
        return values, known

    def _weights(self, number: int) -> Ints:
        known = self._values(number)[1].astype(np.int64)
        return known * self._blocks.frame(number, [WEIGHT])[WEIGHT].to_numpy() if self._weighted else known


class BlockRows(SortedRows):
    """Rows in blocks, from which the values of intervals are computed."""

    def __init__(self, blocks: Blocks, types: Mapping[str, DataType], *, weighted: bool) -> None:
        """Take blocks with columns of some types, whose rows have weights if they are `weighted`."""
        self._blocks = blocks
        self._types = types
        self._weighted = weighted
        self._columns: dict[str, BlockColumn] = {}
        self._counted = (
            BlockCounts(blocks, lambda n: blocks.frame(n, [WEIGHT])[WEIGHT].to_numpy()) if weighted else None
        )

    @property
    def timeline(self) -> Blocks:
        """The groups and times of the rows."""
        return self._blocks

    def counts(self, first: Ints, last: Ints) -> Ints:
        """Return how many rows count in intervals."""
        return last - first if self._counted is None else self._counted.between(first, last)

    def column(self, name: str) -> BlockColumn:
        """Return a column. Raises `OverflowError` as `BlockColumn` does."""
        if name not in self._columns:
            self._columns[name] = BlockColumn(self._blocks, name, self._types[name], weighted=self._weighted)
        return self._columns[name]

    def _weights(self, number: int) -> Ints:
        return self._blocks.frame(number, [WEIGHT])[WEIGHT].to_numpy()


@dataclass(frozen=True, slots=True)
class BlockInputs(WindowInputs):
    """All aggregate inputs of an index, in blocks in the order in which they enter windows.

    Attributes:
        blocks: The blocks, with the event times and ends of inputs (TIME, END) and the columns that aggregates read.
        types: The types of these columns.
        folder: A folder for further blocks.
        sizes: The sizes of blocks.
        overlap: True if inputs leave windows in another order than they entered them.
    """

    blocks: Blocks
    types: Mapping[str, DataType]
    folder: Path
    sizes: BlockSizes
    overlap: bool

    def begun(self) -> SortedRows:
        """Return the inputs in the order in which they enter windows."""
        return BlockRows(self.blocks, self.types, weighted=False)

    def lived(self, length_us: int | None) -> SortedRows:
        """Return a row for each input that enters windows of a length, and one that takes it back when it leaves."""
        count = len(self.blocks.begins) - 1
        made = sorted_blocks(
            self._lives(length_us), self.folder / f"lives-{length_us}", lambda: count, self.sizes, self.blocks.cache
        )
        return BlockRows(made, self.types, weighted=True)

    def _lives(self, length_us: int | None) -> Iterator[pl.DataFrame]:
        for number in range(len(self.blocks)):
            frame = self.blocks.frame(number, [GROUP, AT, TIME, END, *self.types])
            rows, weights, times = lives(frame[AT].to_numpy(), frame[TIME].to_numpy(), frame[END].to_numpy(), length_us)
            yield frame[rows].select(
                GROUP, pl.Series(AT, times), pl.Series(WEIGHT, weights, dtype=pl.Int64), *self.types
            )
