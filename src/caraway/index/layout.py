"""From an index plan to what its tiles keep, how rows enter them and how results come out."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from caraway.dtypes.types import (
    DataType,
    DatetimeType,
    DateType,
    DecimalType,
    FloatType,
    IntType,
    base_type,
    type_name,
)
from caraway.errors import InvalidInputError
from caraway.graph.operators import AggregateFunction, AggregateSpec
from caraway.index.partials import AggregatedColumn, ColumnPartial, Family, Partial
from caraway.plan.model import IndexPlan

LOGGER = logging.getLogger(__name__)

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

# Event time in microseconds, and the values of the aggregated columns.
Contribution = tuple[int, tuple[Any, ...]]

Finisher = Callable[[Partial], object]

SUMMED = {AggregateFunction.SUM, AggregateFunction.AVERAGE, AggregateFunction.STDDEV}
ORDERED = {AggregateFunction.MIN, AggregateFunction.MAX}


@dataclass(frozen=True, slots=True)
class Result:
    """One output column: its window (None: forever), how its value comes out of a partial, its value for a new key."""

    name: str
    window_us: int | None
    finish: Finisher
    unseen: object


class Layout:
    """The aggregated columns of an index and its results."""

    __slots__ = ("_readers", "columns", "results")

    def __init__(self, plan: IndexPlan) -> None:
        self.columns = _columns(plan)
        self._readers = tuple((column, _reader(column)) for column in self.columns)
        positions = {column.name: position for position, column in enumerate(self.columns)}
        self.results = {spec.into: _result(plan, spec, positions, self.columns) for spec in plan.aggregates}

    def values(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """Return the values of the aggregated columns, decimals as numbers of their smallest units.

        Raises:
            InvalidInputError: A value isn't of its column's type.
        """
        return tuple([read(column, row[column.position]) for column, read in self._readers])

    def empty(self) -> Partial:
        """Return the partial aggregate of nothing."""
        return Partial([ColumnPartial() for _ in self.columns])

    def partial(self, contributions: Sequence[Contribution]) -> Partial:
        """Return the partial aggregate of `contributions`."""
        partial = self.empty()
        self.add(partial, contributions)
        return partial

    def add(self, partial: Partial, contributions: Sequence[Contribution]) -> None:
        """Add `contributions`, at least one, to a partial aggregate."""
        partial.count += len(contributions)
        times = [time_us for time_us, _ in contributions]
        low, high = min(times), max(times)
        partial.low, partial.high = min(low, partial.low), max(high, partial.high)
        for position, column in enumerate(self.columns):
            values = [values[position] for _, values in contributions if values[position] is not None]
            if values:
                partial.columns[position].add(column, values)


def _columns(plan: IndexPlan) -> tuple[AggregatedColumn, ...]:
    functions: dict[str, set[AggregateFunction]] = {}
    for spec in plan.aggregates:
        if spec.of is not None and spec.function is not AggregateFunction.COUNT:
            functions.setdefault(spec.of, set()).add(spec.function)
    positions = {column.name: position for position, column in enumerate(plan.schema.columns)}
    columns = []
    for name, used in functions.items():
        position = positions[name]
        family, unit = _family(name, plan.schema.columns[position].dtype)
        columns.append(
            AggregatedColumn(
                name=name,
                position=position,
                family=family,
                unit=unit,
                sums=bool(used & SUMMED),
                squares=AggregateFunction.STDDEV in used,
                extremes=bool(used & ORDERED),
            )
        )
    return tuple(columns)


def _family(name: str, dtype: DataType) -> tuple[Family, int]:
    base = base_type(dtype)
    match base:
        case IntType() | DateType() | DatetimeType():
            return Family.INT, 1
        case FloatType():
            return Family.FLOAT, 1
        case DecimalType(scale):
            return Family.DECIMAL, 10**scale
        case _:
            raise InvalidInputError(f"column {name} of type {type_name(dtype)} has no numbers to aggregate")


Reader = Callable[[AggregatedColumn, object], float | None]


def _reader(column: AggregatedColumn) -> Reader:
    return {Family.INT: _read_int, Family.FLOAT: _read_float, Family.DECIMAL: _read_decimal}[column.family]


def _read_int(column: AggregatedColumn, value: object) -> int | None:
    if value is None or type(value) is int:
        return value
    raise _mistyped(column, value)


def _read_float(column: AggregatedColumn, value: object) -> float | None:
    if value is None or type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise _mistyped(column, value)


def _read_decimal(column: AggregatedColumn, value: object) -> int | None:
    if value is None:
        return None
    if type(value) is str:
        whole, _, fraction = value.partition(".")
        digits = len(str(column.unit)) - 1
        if len(fraction) <= digits:
            try:
                return int(whole + fraction.ljust(digits, "0"))
            except ValueError:
                pass
    raise _mistyped(column, value)


def _mistyped(column: AggregatedColumn, value: object) -> InvalidInputError:
    return InvalidInputError(f"column {column.name} holds {value!r}, which is no {column.family.value}")


def _decimal_text(value: int, unit: int) -> str:
    """Spell a number of smallest units as a decimal with all digits of its scale."""
    if unit == 1:
        return str(value)
    whole, fraction = divmod(abs(value), unit)
    return f"{'-' if value < 0 else ''}{whole}.{fraction:0{len(str(unit)) - 1}d}"


def _result(
    plan: IndexPlan, spec: AggregateSpec, positions: dict[str, int], columns: Sequence[AggregatedColumn]
) -> Result:
    if spec.function is AggregateFunction.COUNT:
        return Result(spec.into, spec.window_us, _count, None)
    if spec.of is None:
        raise InvalidInputError(f"{plan.dataset}.{spec.into}: {spec.function.value} needs a column")
    position = positions[spec.of]
    column = columns[position]
    default = _default(spec, column)
    match spec.function:
        case AggregateFunction.SUM:
            return Result(spec.into, spec.window_us, _sum(f"{plan.dataset}.{spec.into}", position, column), None)
        case AggregateFunction.AVERAGE:
            finish = _moment(position, default, lambda c: c.mean(column.unit))
        case AggregateFunction.STDDEV:
            finish = _moment(position, default, lambda c: c.stddev(column.unit))
        case AggregateFunction.MIN:
            finish = _moment(position, default, lambda c: _shown(_least(c), column))
        case AggregateFunction.MAX:
            finish = _moment(position, default, lambda c: _shown(_greatest(c), column))
        case _:
            raise InvalidInputError(f"{plan.dataset}.{spec.into}: the index doesn't compute {spec.function.value} yet")
    return Result(spec.into, spec.window_us, finish, default)


def _default(spec: AggregateSpec, column: AggregatedColumn) -> object:
    """Return the value of an empty window in stored form.

    Raises:
        InvalidInputError: The plan has none such.
    """
    match spec.default:
        case None:
            return None
        case bool():
            raise _misfit(spec)
        case int() | float() if spec.function in SUMMED or column.family is Family.FLOAT:
            return float(spec.default)
        case int() | float() if column.family is Family.INT:
            return int(spec.default)
        case int() | float():
            return _decimal_text(round(spec.default * column.unit), column.unit)
        case str() if column.family is Family.DECIMAL:
            return spec.default
        case _:
            raise _misfit(spec)


def _misfit(spec: AggregateSpec) -> InvalidInputError:
    return InvalidInputError(f"{spec.into}: the default {spec.default!r} doesn't fit column {spec.of}")


def _count(partial: Partial) -> object:
    return partial.count


def _sum(name: str, position: int, column: AggregatedColumn) -> Finisher:
    if column.family is Family.FLOAT:
        return lambda partial: partial.columns[position].sum()
    if column.family is Family.DECIMAL:
        return lambda partial: _decimal_text(partial.columns[position].total, column.unit)
    told: list[bool] = []

    def finish(partial: Partial) -> object:
        total = partial.columns[position].total
        if INT64_MIN <= total <= INT64_MAX:
            return total
        if not told:
            told.append(True)
            LOGGER.warning("%s: a sum is beyond 64 bits and reads as null (said once)", name)
        return None

    return finish


def _moment(position: int, default: object, finish: Callable[[ColumnPartial], object]) -> Finisher:
    """Apply `finish` to the column's partial, if it has values."""

    def finished(partial: Partial) -> object:
        column = partial.columns[position]
        return finish(column) if column.count else default

    return finished


def _least(column: ColumnPartial) -> float:
    """Return the least value; NaN only where there is nothing else."""
    return float("nan") if column.least is None else column.least


def _greatest(column: ColumnPartial) -> float:
    """Return the greatest value, which NaN is."""
    return float("nan") if column.nans or column.greatest is None else column.greatest


def _shown(value: float, column: AggregatedColumn) -> object:
    if column.family is Family.DECIMAL:
        return _decimal_text(int(value), column.unit)
    # Which of the equal zeros came first must not show: -0.0 + 0.0 is 0.0.
    return value + 0.0 if column.family is Family.FLOAT else value
