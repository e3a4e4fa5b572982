"""The evaluation of some rows of an offline query. A row that fails doesn't keep the others from their results."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from caraway.dtypes.instants import instant_us
from caraway.errors import ExtractorError, InvalidInputError
from caraway.query.executor import CompiledPlan

_ROW = re.compile(r"\brow 0\b")


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The results of rows.

    Attributes:
        columns: The outputs in stored form, null for rows that failed.
        times: The time of each row in microseconds, None if it can't be read.
        errors: Why a row failed; None for a row that didn't.
    """

    columns: dict[str, list[object]]
    times: list[int | None]
    errors: list[str | None]


def evaluate(
    plan: CompiledPlan, inputs: Mapping[str, Sequence[object]], timestamps: Sequence[object], first: int
) -> Evaluated:
    """Compute the outputs of a plan for rows, each as of its time.

    Args:
        plan: The plan.
        inputs: The columns of the inputs.
        timestamps: The time of each row: a datetime, ISO text or epoch number.
        first: The number of the first row, for errors.
    """
    rows = len(timestamps)
    found = Evaluated({name: [None] * rows for name in plan.output_names}, [None] * rows, [None] * rows)
    for row, value in enumerate(timestamps):
        try:
            found.times[row] = instant_us(value)
        except (InvalidInputError, ValueError, OverflowError) as error:
            found.errors[row] = f"the timestamp of row {first + row}: {error}"
    left = [[row for row in range(rows) if found.times[row] is not None]]
    while left:
        some = left.pop()
        if some:
            left += _evaluate(plan, inputs, found, some, first)
    return found


def _evaluate(
    plan: CompiledPlan, inputs: Mapping[str, Sequence[object]], found: Evaluated, rows: list[int], first: int
) -> list[list[int]]:
    """Compute the outputs of some rows; if one of them fails, return the rows in halves, which are to be computed."""
    whole = len(rows) == len(found.times)
    data = {name: list(values) if whole else [values[row] for row in rows] for name, values in inputs.items()}
    try:
        computed = plan.columns(data, [found.times[row] or 0 for row in rows])
    except (InvalidInputError, ExtractorError) as error:
        if len(rows) == 1:
            found.errors[rows[0]] = _ROW.sub(f"row {first + rows[0]}", str(error))
            return []
        middle = len(rows) // 2
        return [rows[middle:], rows[:middle]]
    for name, values in computed.items():
        if whole:
            found.columns[name] = values
            continue
        column = found.columns[name]
        for row, value in zip(rows, values, strict=True):
            column[row] = value
    return []
