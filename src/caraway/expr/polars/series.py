"""Functions over whole columns that polars lacks: Python functions of each row, and access to elements of lists."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from caraway.dtypes.types import DataType
from caraway.expr.polars.values import from_polars, polars_type, to_polars

Integers = np.ndarray[Any, np.dtype[np.int64]]
Truths = np.ndarray[Any, np.dtype[np.bool_]]


def of_columns(function: Callable[[list[pl.Series]], pl.Series], inputs: Sequence[pl.Expr], dtype: DataType) -> pl.Expr:
    """Return the expression of a function of whole columns, which are of one length; constants are repeated for it."""
    given = list(inputs)
    if not any(expr.meta.root_names() for expr in given):
        # If all inputs are constants, polars calls the function with one row and doesn't repeat the result for each row
        # of the frame. With the column added here, the function is called with as many rows as the frame has.
        given.append(pl.int_range(pl.len(), dtype=pl.Int64))
    count = len(inputs)

    def compute(columns: Sequence[pl.Series]) -> pl.Series:
        length = next((len(column) for column in columns if len(column) != 1), 1)
        # A constant arrives as a column of a single value, which is repeated here.
        aligned = [column if len(column) == length else column.new_from_index(0, length) for column in columns]
        return function(aligned[:count])

    return pl.map_batches(given, compute, return_dtype=polars_type(dtype))


def by_row(
    function: Callable[..., Any], inputs: Sequence[pl.Expr], types: Sequence[DataType], dtype: DataType
) -> pl.Expr:
    """Return the expression of a Python function of stored values, applied to each row; null if an input is null."""

    def compute(columns: list[pl.Series]) -> pl.Series:
        stored = [from_polars(column, of) for column, of in zip(columns, types, strict=True)]
        if len(stored) == 1:
            values = [None if value is None else function(value) for value in stored[0]]
        else:
            values = [None if None in row else function(*row) for row in zip(*stored, strict=True)]
        return to_polars("", values, dtype)

    return of_columns(compute, inputs, dtype)


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of all lists in a column, one list after the other, with the length of each row's list.

    A null row has the length 0, and is false in `valid`. Arrow splits the lists, because a call of polars would take
    longer than the whole work if there are few rows.
    """

    values: pl.Series
    lengths: Integers
    valid: Truths

    @classmethod
    def of(cls, lists: pl.Series) -> "Elements":
        """Split a column of lists into its elements."""
        array = lists.to_arrow()
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        lengths = np.where(valid, np.diff(array.offsets.to_numpy()), 0)
        return cls(values=of_array(array.flatten()), lengths=lengths, valid=valid)

    def rows(self) -> Integers:
        """Return for each element the number of its row."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def with_values(self, values: pl.Series) -> pl.Series:
        """Return the column of lists with other elements."""
        return lists_of(values, self.lengths, self.valid)

    def first(self, lengths: Integers) -> pl.Series:
        """Return the first elements of each row, as many as `lengths` says, one row after the other."""
        starts = np.cumsum(self.lengths) - self.lengths
        positions = np.arange(len(self.values)) - np.repeat(starts, self.lengths)
        return self.values.filter(pl.Series(positions < np.repeat(lengths, self.lengths)))

    def rows_with(self, kept: Truths) -> Truths:
        """Return for each row whether `kept` is true for one of its elements."""
        return np.asarray(self._counts(kept) > 0)

    def filtered(self, kept: pl.Series) -> pl.Series:
        """Return the column of lists with only those elements for which `kept` is true."""
        counts = self._counts(true_where(kept))
        return lists_of(self.values.filter(kept), counts, self.valid)

    def _counts(self, kept: Truths) -> Integers:
        return np.bincount(self.rows()[kept], minlength=len(self.lengths))


def lists_of(values: pl.Series, lengths: Integers, valid: Truths | None = None) -> pl.Series:
    """Return elements joined to a column of lists of the given lengths, null where not valid."""
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    mask = None if valid is None else np.append(~valid, [False])
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, type=pa.int64(), mask=mask), values.to_arrow())
    return of_array(lists)


def of_array(array: pa.Array) -> pl.Series:
    """Return an Arrow array as a polars column."""
    made = pl.from_arrow(array)
    assert isinstance(made, pl.Series)  # noqa: S101 (an array gives a series)
    return made


def true_where(truths: pl.Series) -> Truths:
    """Return where a column of truth values is true: neither false nor null."""
    return true_in(truths.to_arrow())


def true_in(truths: pa.Array) -> Truths:
    """Return where an array of truth values is true: neither false nor null."""
    return np.asarray(pc.fill_null(truths, False).to_numpy(zero_copy_only=False))


def null_where(values: pl.Series) -> Truths:
    """Return where a column is null."""
    return np.asarray(values.to_arrow().is_null().to_numpy(zero_copy_only=False))
