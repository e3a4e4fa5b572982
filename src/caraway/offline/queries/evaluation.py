"""The evaluation of some rows of an offline query. A row that fails doesn't keep the others from their results."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pyarrow as pa

from caraway.compute.query.batch import Batch
from caraway.compute.query.executor import CompiledPlan
from caraway.compute.query.model import LookupStep, TypedColumn
from caraway.dtypes.frames import arrow_array
from caraway.dtypes.instants import instant_us
from caraway.dtypes.types import (
    BoolType,
    DataType,
    DatetimeType,
    FloatType,
    IntType,
    StringType,
    base_type,
)
from caraway.dtypes.values import arrow_type
from caraway.errors import ExtractorError, InvalidInputError
from caraway.expr.polars.values import from_polars
from caraway.offline.columns import SeriesBatch
from caraway.offline.queries.inputs import InputPart

# A failing row is evaluated alone in the end, so its error says "row 0". The row's number in the query takes the place
# of the 0.
_ROW = re.compile(r"\brow 0\b")
# At most this many rows of a part are sampled to see whether lookups find the event of the row itself (`_own_events`).
SAMPLED = 100
# Types whose columns are the same in polars and in Arrow.
_PLAIN = (IntType, FloatType, BoolType, StringType, DatetimeType)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The results of rows.

    Attributes:
        columns: The outputs, null for rows that failed.
        times: The time of each row in microseconds, None if it can't be read.
        errors: Why a row failed; None for a row that didn't.
        own_events: The share of some of the rows for which something that is looked up has changed at their own time.
    """

    columns: dict[str, pa.Array]
    times: list[int | None]
    errors: list[str | None]
    own_events: float = 0.0


def evaluate(
    plan: CompiledPlan, part: InputPart, first: int, interrupted: Callable[[], bool] = lambda: False
) -> Evaluated | None:
    """Compute the outputs of a plan for rows, each as of its time.

    Args:
        plan: The plan.
        part: The rows.
        first: The number of the first row, for errors.
        interrupted: Returns whether to give up. If many rows fail, a function of a user is called thousands of times.

    Returns:
        The results; None if the evaluation was given up. Those of the first rows have the share of own events.
    """
    found = _evaluated(plan, part, first, interrupted)
    if found is None or first:
        return found
    return replace(found, own_events=_own_events(plan, part, found))


def _evaluated(plan: CompiledPlan, part: InputPart, first: int, interrupted: Callable[[], bool]) -> Evaluated | None:
    times, errors = times_of(part, first)
    every = [row for row in range(part.rows) if times[row] is not None]
    try:
        if len(every) == part.rows and every:
            batch = plan.evaluate({name: list(values) for name, values in part.inputs.items()}, [t or 0 for t in times])
            return Evaluated({c.name: _of_batch(batch, c) for c in plan.plan.outputs}, times, errors)
    except (InvalidInputError, ExtractorError):
        # Some row fails. The rows are computed again in ever smaller halves, until each failing row is alone.
        pass
    return _Halving(plan, part, first, times, errors).run(every, interrupted)


def _own_events(plan: CompiledPlan, part: InputPart, found: Evaluated) -> float:
    """Return for which share of up to `SAMPLED` rows a lookup has another answer a microsecond earlier."""
    names = [looked.column for step in plan.plan.steps if isinstance(step, LookupStep) for looked in step.features]
    fine = [row for row, error in enumerate(found.errors) if error is None]
    rows = fine[:: max(1, len(fine) // SAMPLED)][:SAMPLED]
    if not names or not rows:
        return 0.0
    times = [found.times[row] or 0 for row in rows]
    # The time of each row and the microsecond before it are evaluated in one call, since every call reads files.
    data = {name: [values[row] for row in rows] * 2 for name, values in part.inputs.items()}
    try:
        columns = plan.evaluate(data, [*times, *(time_us - 1 for time_us in times)]).columns
    except (InvalidInputError, ExtractorError):
        # Before its first event a row may lack a feature, and its evaluation fails. Then nothing is known about own
        # events.
        return 0.0
    looked_up = [columns[name] for name in names]
    own = sum(any(_differ(values[row], values[row + len(rows)]) for values in looked_up) for row in range(len(rows)))
    return own / len(rows)


def _differ(one: object, other: object) -> bool:
    # A NaN differs from itself in Python, but two NaNs are the same answer.
    return one != other and (one == one or other == other)  # noqa: PLR0124


def before_its_time(
    compute: Callable[[InputPart, int, Callable[[], bool]], Evaluated | None],
) -> Callable[[InputPart, int, Callable[[], bool]], Evaluated | None]:
    """Return an evaluation of rows as of just before their times, a microsecond, which results show as they are."""

    def earlier(part: InputPart, first: int, interrupted: Callable[[], bool]) -> Evaluated | None:
        times, errors = times_of(part, first)
        moved = replace(part, timestamps=(), times=[None if time_us is None else time_us - 1 for time_us in times])
        found = compute(moved, first, interrupted)
        if found is None:
            return None
        told = [unread or failed for unread, failed in zip(errors, found.errors, strict=True)]
        return replace(found, times=times, errors=told, own_events=0.0)

    return earlier


def times_of(part: InputPart, first: int) -> tuple[list[int | None], list[str | None]]:
    """Return the time of each row in microseconds, and the errors of those whose times can't be read."""
    errors: list[str | None] = [None] * part.rows
    if part.times is not None:
        times = list(part.times)
        for row, time_us in enumerate(times):
            if time_us is None:
                errors[row] = f"the timestamp of row {first + row} is null"
        return times, errors
    found: list[int | None] = [None] * part.rows
    for row, value in enumerate(part.timestamps):
        try:
            found[row] = instant_us(value)
        except (InvalidInputError, ValueError, OverflowError) as error:
            errors[row] = f"the timestamp of row {first + row}: {error}"
    return found, errors


class _Halving:
    """The evaluation of rows some of which fail."""

    def __init__(
        self, plan: CompiledPlan, part: InputPart, first: int, times: list[int | None], errors: list[str | None]
    ) -> None:
        self._plan = plan
        self._part = part
        self._first = first
        self._times = times
        self._errors = errors
        self._values: dict[str, list[object]] = {name: [None] * part.rows for name in plan.output_names}

    def run(self, rows: list[int], interrupted: Callable[[], bool]) -> Evaluated | None:
        """Compute the outputs of rows, in ever smaller halves, until each failing row is alone; None if interrupted."""
        left = [rows]
        while left:
            if interrupted():
                return None
            some = left.pop()
            if some and not self._succeed(some):
                middle = len(some) // 2
                left += [some[middle:], some[:middle]] if middle else []
        columns = {c.name: _array(self._values[c.name], c.dtype) for c in self._plan.plan.outputs}
        return Evaluated(columns, self._times, self._errors)

    def _succeed(self, rows: list[int]) -> bool:
        """Compute the outputs of some rows; return whether none of them fails. A single one's error is kept."""
        data: dict[str, object] = {name: [values[row] for row in rows] for name, values in self._part.inputs.items()}
        try:
            computed = self._plan.columns(data, [self._times[row] or 0 for row in rows])
        except (InvalidInputError, ExtractorError) as error:
            if len(rows) == 1:
                # The row was computed alone, so the error calls it "row 0". Only the first "row 0" is replaced by the
                # row's real number, since a later one may be part of a value that the error quotes.
                self._errors[rows[0]] = _ROW.sub(f"row {self._first + rows[0]}", str(error), count=1)
            return False
        for name, column in computed.items():
            into = self._values[name]
            for row, value in zip(rows, column, strict=True):
                into[row] = value
        return True


def _of_batch(batch: Batch, column: TypedColumn) -> pa.Array:
    if isinstance(batch, SeriesBatch) and column.dtype is not None:
        known = batch.columns.series.get(column.name)
        if known is not None:
            return array_of(known[0], column.dtype)
    return _array(batch.columns[column.name], column.dtype)


def array_of(series: pl.Series, dtype: DataType) -> pa.Array:
    """Return a column of polars as the results have it."""
    if isinstance(base_type(dtype), _PLAIN):
        return series.to_arrow().cast(arrow_type(base_type(dtype)))
    return _array(from_polars(series, dtype), dtype)


def _array(values: Sequence[Any], dtype: DataType | None) -> pa.Array:
    if dtype is None:
        # The graph has no type for a feature that only the caller supplies, so Arrow infers one from the values.
        return pa.array(values)
    return arrow_array(values, dtype)
