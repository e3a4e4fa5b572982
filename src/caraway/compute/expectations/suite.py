"""The checks of a dataset, compiled for its columns: which rows of a batch each of them looked at, and which failed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from caraway.compute.expectations.columns import null_of, passes_by_column
from caraway.compute.expectations.predicates import (
    Predicate,
    expectation_names,
    holds,
    is_skipped,
    predicate_of,
    skips_nothing,
)
from caraway.dtypes.types import DataType, FloatType, StringType, base_type
from caraway.dtypes.values import decode, is_null
from caraway.expr.polars.compiler import compile_expr
from caraway.expr.polars.values import to_polars
from caraway.expr.references import columns_of as columns_of_node
from caraway.graph.expectations import Expectation, ExpectationSuite, arguments_of, columns_of, is_strict
from caraway.graph.row_conditions import row_condition

Mask = npt.NDArray[np.bool_]
# A row's values in stored form (docs/inside/records.md), by column.
Columns = Mapping[str, Sequence[Any]]

# A check caches its results by value. The cache is emptied before it would exceed KEPT_RESULTS results, and has no
# results for values whose texts have more than KEPT_CHARACTERS characters together.
KEPT_RESULTS, KEPT_CHARACTERS = 20_000, 200


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of one check on some rows: the rows that it looked at, and those of them that failed."""

    evaluated: Mask
    failed: Mask


@dataclass(frozen=True, slots=True)
class CheckInfo:
    """A check of a suite.

    Attributes:
        name: Its name with its columns, and a number if it is repeated.
        columns: The columns that it is about.
        mostly: The share of rows that should pass, from 0 to 1.
        strict: True if rows that fail are refused.
    """

    name: str
    columns: tuple[str, ...]
    mostly: float
    strict: bool = False


def checks_of(suite: ExpectationSuite) -> tuple[CheckInfo, ...]:
    """Return the checks of a suite, in order."""
    names = expectation_names(suite)
    return tuple(_info(name, item) for name, item in zip(names, suite.expectations, strict=True))


class CompiledSuite:
    """All checks of a dataset.

    Thread safe: threads share nothing but the results of values that were looked at, each of which is kept, found or
    forgotten in one step of Python.
    """

    def __init__(self, suite: ExpectationSuite, types: Mapping[str, DataType]) -> None:
        """Compile the checks of a dataset whose columns have these types.

        Raises `DefinitionError` if the condition of a check can't be compiled; a commit refuses such checks.
        """
        self.checks = checks_of(suite)
        self._types = types
        self._compiled = [_compiled(item, types) for item in suite.expectations]
        of_frame = {name for check in self._compiled for name in check.of_frame}
        self.columns = tuple(dict.fromkeys((*of_frame, *(name for check in self.checks for name in check.columns))))
        """The columns that `check` needs."""
        self._of_frame = tuple(sorted(of_frame))
        self._expressions = [
            expression.alias(f"{kind}{number}")
            for number, check in enumerate(self._compiled)
            for kind, expression in check.expressions()
        ]

    def check(self, columns: Columns, rows: int) -> list[Checked]:
        """Return the result of each check on some rows, in order.

        Args:
            columns: The values of `columns`, and perhaps of others, in stored form.
            rows: The number of rows.
        """
        if not rows:
            nothing = np.zeros(0, np.bool_)
            return [Checked(nothing, nothing) for _ in self._compiled]
        # The column gives the frame its number of rows. Without it, an expression that is a constant would have one
        # value instead of one for each row.
        frame = pl.DataFrame({"": np.zeros(rows, np.int8)})
        frame = frame.with_columns([_column(name, columns[name], self._types[name]) for name in self._of_frame])
        masks = frame.with_columns(self._expressions) if self._expressions else frame
        return [check.result(number, columns, masks, rows) for number, check in enumerate(self._compiled)]


class _Check:
    """A check whose rows are looked at by an expression, or one by one."""

    def __init__(self, item: Expectation, types: Mapping[str, DataType]) -> None:
        self._name, self._arguments = item.name, arguments_of(item)
        self._columns = columns_of(self._arguments)
        condition = self._arguments.get("row_condition")
        node = None if condition is None else row_condition(condition, types)
        self._condition = None if node is None else compile_expr(node, dict(types)).fill_null(value=False)
        self._passes = passes_by_column(item.name, self._arguments, types)
        self._skipped = None if self._passes is None else _skipped(item.name, self._arguments, types)
        used = set(self._columns) if self._passes is not None else set()
        self.of_frame = used | (set() if node is None else set(columns_of_node(node)))
        self._row_check = None if self._passes is not None else _RowCheck(item.name, self._arguments, types)

    def expressions(self) -> list[tuple[str, pl.Expr]]:
        found = {"condition ": self._condition, "passes ": self._passes, "skipped ": self._skipped}
        return [(kind, expression) for kind, expression in found.items() if expression is not None]

    def result(self, number: int, columns: Columns, masks: pl.DataFrame, rows: int) -> Checked:
        if self._row_check is not None:
            skipped, passes = self._row_check([columns[name] for name in self._columns], rows)
        else:
            passes = _mask(masks, f"passes {number}")
            skipped = np.zeros(rows, np.bool_) if self._skipped is None else _mask(masks, f"skipped {number}")
        evaluated = ~skipped
        if self._condition is not None:
            evaluated &= _mask(masks, f"condition {number}")
        return Checked(evaluated, evaluated & ~passes)


# The results of a check for a row.
LEFT_OUT, FAILED, PASSED = 0, 1, 2


class _RowCheck:
    """Looks at rows one by one, and at rows with equal values once, if that is faster."""

    def __init__(self, name: str, arguments: Mapping[str, Any], types: Mapping[str, DataType]) -> None:
        self._name, self._arguments = name, arguments
        self._predicate: Predicate = predicate_of(name, arguments)
        names = columns_of(arguments)
        self._shows = [_python(types[column]) for column in names]
        # A stored text is a Python str already, so it is checked without a conversion.
        is_text = len(names) == 1 and isinstance(base_type(types[names[0]]), StringType)
        self._look = self._look_at_text if is_text else self._look_at_row
        # The cached results, by the value of the column, or by the tuple of the values of several columns.
        self._known: dict[object, int] = {}

    def __call__(self, columns: Sequence[Sequence[Any]], rows: int) -> tuple[Mask, Mask]:
        if not columns:
            return np.zeros(rows, np.bool_), np.ones(rows, np.bool_)
        values: Sequence[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        found: list[Any]
        try:
            found = list(map(self._known.get, values))
        except TypeError:
            # A list or a map isn't hashable, so results for a column of lists or maps aren't cached.
            found = list(map(self._look, values))
        else:
            for place, known in enumerate(found):
                if known is None:
                    found[place] = self._noted(values[place])
        return _masks(found)

    def _noted(self, value: Any) -> int:
        known = self._known.get(value)
        if known is None:
            known = self._look(value)
            if len(self._known) >= KEPT_RESULTS:
                self._known.clear()
            if _characters(value) <= KEPT_CHARACTERS:
                self._known[value] = known
        return known

    def _look_at_text(self, value: Any) -> int:
        if value is None:
            return LEFT_OUT
        try:
            return PASSED if self._predicate(value) else FAILED
        except Exception:  # noqa: BLE001 (a check that breaks on a row has not passed)
            return FAILED

    def _look_at_row(self, value: Any) -> int:
        row = (value,) if len(self._shows) == 1 else value
        try:
            shown = [None if is_null(one) else show(one) for one, show in zip(row, self._shows, strict=True)]
        except (OverflowError, ValueError):
            # Python has no datetime for an instant outside of the years 1 to 9999, so no check can be passed.
            return FAILED
        if is_skipped(self._name, shown, self._arguments):
            return LEFT_OUT
        return PASSED if holds(self._predicate, shown) else FAILED


def _masks(results: Sequence[int]) -> tuple[Mask, Mask]:
    """Return which rows are left out, and which passed."""
    found = np.array(results, np.int8)
    return found == LEFT_OUT, found == PASSED


def _characters(value: Any) -> int:
    if isinstance(value, (str, bytes)):
        return len(value)
    return sum(map(_characters, value)) if isinstance(value, tuple) else 0


def _column(name: str, values: Sequence[Any], dtype: DataType) -> pl.Series:
    """Return a column in which NaN is null: for polars it is the greatest number, for an expectation no value."""
    column = to_polars(name, values, dtype)
    return column.fill_nan(None) if isinstance(base_type(dtype), FloatType) else column


def _info(name: str, item: Expectation) -> CheckInfo:
    arguments = arguments_of(item)
    mostly = arguments.get("mostly")
    return CheckInfo(name, columns_of(arguments), 1.0 if mostly is None else float(mostly), is_strict(item))


def _compiled(item: Expectation, types: Mapping[str, DataType]) -> _Check:
    return _Check(item, types)


def _mask(masks: pl.DataFrame, name: str) -> Mask:
    # A check of a null may have the result null, which becomes False here. The mask of skipped rows leaves out such
    # rows.
    found: Mask = masks[name].fill_null(value=False).to_numpy()
    return found


def _skipped(name: str, arguments: Mapping[str, Any], types: Mapping[str, DataType]) -> pl.Expr | None:
    """Return the expression that is true of the rows that a check leaves out; None if it leaves out none."""
    if skips_nothing(name):
        return None
    nulls = [null_of(column, types[column]) for column in columns_of(arguments)]
    if len(nulls) == 1:
        return nulls[0]
    match arguments.get("ignore_row_if"):
        case "neither":
            return None
        case "either_value_is_missing":
            return pl.any_horizontal(nulls)
        case _:
            return pl.all_horizontal(nulls)


def _python(dtype: DataType) -> Callable[[Any], Any]:
    found = base_type(dtype)
    # The stored form of a float may be an int, if a job wrote the row.
    return float if isinstance(found, FloatType) else decode(found)
