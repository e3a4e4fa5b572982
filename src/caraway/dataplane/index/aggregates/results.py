"""The results of aggregates, computed from the partial aggregates of their windows."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from caraway.dataplane.index.aggregates.columns import Family, decimal_text, family_of
from caraway.dataplane.index.aggregates.decay import DecayedSum
from caraway.dataplane.index.aggregates.exact import MOMENTS
from caraway.dataplane.index.aggregates.layout import Layout, keeps_values, reads_values
from caraway.dataplane.index.aggregates.partials import ColumnPartial, Partial
from caraway.dataplane.index.aggregates.values import Values
from caraway.dtypes.types import DecimalType, base_type
from caraway.dtypes.values import DECIMAL_DIGITS
from caraway.errors import InvalidInputError
from caraway.graph.aggregates import TRAITS, AggregateFunction, AggregateSpec, Keeps, ResultType, ValueUse
from caraway.graph.plan.model import IndexPlan

LOGGER = logging.getLogger(__name__)

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

# A function that returns the result of an aggregate. Its arguments are the partial aggregate of the window and the time
# of the read, in microseconds.
Finisher = Callable[[Partial, int], object]


@dataclass(frozen=True, slots=True)
class Result:
    """One output column: its aggregate, the function that computes its value, and the value for a key never seen.

    `finish` is None for lists, which are read without partial aggregates. `extras` are the extras of the layout that
    the column needs.
    """

    name: str
    spec: AggregateSpec
    finish: Finisher | None
    unseen: object
    extras: frozenset[int] = frozenset()


def results_of(plan: IndexPlan, layout: Layout) -> dict[str, Result]:
    """Return the results of a plan by the names of their columns."""
    return {spec.into: _result(f"{plan.dataset}.{spec.into}", spec, layout) for spec in plan.aggregates}


def _result(name: str, spec: AggregateSpec, layout: Layout) -> Result:
    of, traits = spec.of, TRAITS[spec.function]
    # Some functions, such as the average, have a default for empty windows, which is also their result for a key that
    # was never seen. For such a key the others return null; for empty windows they need no default: a sum is 0.
    unseen = default = _default(spec, layout) if traits.default_if_unseen else None
    if traits.result is ResultType.LIST_OF_COLUMN:
        return Result(spec.into, spec, None, None)
    if not reads_values(spec):
        return Result(spec.into, spec, lambda partial, _: partial.count, None)
    if of is None:
        raise InvalidInputError(f"{name}: {spec.function.value} needs a column")
    if traits.keeps is Keeps.DECAYED_SUM:
        if spec.half_life_us is None:
            raise InvalidInputError(f"{name}: exp_decay_sum needs a half-life")
        position = layout.decayed_of[of, spec.half_life_us]
        return Result(spec.into, spec, _decayed(position), unseen, frozenset([position]))
    if keeps_values(spec):
        position = layout.values_of[of]
        if traits.values is ValueUse.COUNTED:
            finish = _unique(position, nulls=not spec.dropnull)
        else:
            finish = _quantile(position, spec.p or 0.0, default)
        return Result(spec.into, spec, finish, unseen, frozenset([position]))
    return Result(spec.into, spec, _of_sums(name, spec, layout, default), unseen)


def _of_sums(name: str, spec: AggregateSpec, layout: Layout, default: object) -> Finisher:
    position = layout.plain_of[spec.of or ""]
    column = layout.columns[position]
    unit = column.unit
    match spec.function:
        case AggregateFunction.COUNT:
            return lambda partial, _: partial.columns[position].count
        case AggregateFunction.SUM:
            return _sum(name, position, spec, layout)
        case AggregateFunction.MIN:
            return _moment(position, default, lambda c: _shown(_least(c), column.family, unit))
        case AggregateFunction.MAX:
            return _moment(position, default, lambda c: _shown(_greatest(c), column.family, unit))
        case function if function in MOMENTS:
            moment = MOMENTS[function]
            return _moment(position, default, lambda c: moment(c, unit))
        case _:
            raise InvalidInputError(f"{name}: {spec.function.value} is no sum")


def _default(spec: AggregateSpec, layout: Layout) -> object:
    """Return the value of an empty window in stored form.

    Raises `InvalidInputError` if the plan's default doesn't fit the function.
    """
    family, unit = family_of(layout.types[spec.of]) if spec.of in layout.types else (Family.ANY, 1)
    match spec.default:
        case None:
            return None
        case bool():
            raise _misfit(spec)
        case int() | float() if TRAITS[spec.function].result is ResultType.FLOAT or family is Family.FLOAT:
            return float(spec.default)
        case int() | float() if family is Family.INT:
            return int(spec.default)
        case int() | float() if family is Family.DECIMAL:
            return decimal_text(round(spec.default * unit), unit)
        case str() if family is Family.DECIMAL:
            return spec.default
        case _:
            raise _misfit(spec)


def _misfit(spec: AggregateSpec) -> InvalidInputError:
    return InvalidInputError(f"{spec.into}: the default {spec.default!r} doesn't fit column {spec.of}")


def _sum(name: str, position: int, spec: AggregateSpec, layout: Layout) -> Finisher:
    column = layout.columns[position]
    if column.family is Family.FLOAT:
        return lambda partial, _: partial.columns[position].sum()
    logged: list[bool] = []
    if isinstance(base_type(layout.types[spec.of or ""]), DecimalType):
        least, most, limit = 1 - 10**DECIMAL_DIGITS, 10**DECIMAL_DIGITS - 1, f"{DECIMAL_DIGITS} digits"
    else:
        least, most, limit = INT64_MIN, INT64_MAX, "64 bits"

    def finish(partial: Partial, _at_us: int) -> object:
        total = partial.columns[position].total
        if least <= total <= most:
            return decimal_text(total, column.unit) if column.family is Family.DECIMAL else total
        if not logged:
            logged.append(True)
            LOGGER.warning("%s: a sum is beyond %s and reads as null (logged once)", name, limit)
        return None

    return finish


def _moment(position: int, default: object, finish: Callable[[ColumnPartial], object]) -> Finisher:
    """Return a function that applies `finish` to the column's partial aggregate, or returns the default if empty."""

    def finished(partial: Partial, _at_us: int) -> object:
        column = partial.columns[position]
        return finish(column) if column.count else default

    return finished


def _unique(position: int, *, nulls: bool) -> Finisher:
    return lambda partial, _: _values(partial, position).distinct(nulls=nulls)


def _quantile(position: int, p: float, default: object) -> Finisher:
    def finish(partial: Partial, _at_us: int) -> object:
        found = _values(partial, position).quantile(p)
        return default if found is None else found

    return finish


def _decayed(position: int) -> Finisher:
    def finish(partial: Partial, at_us: int) -> object:
        decayed = partial.extras[position]
        if not isinstance(decayed, DecayedSum):
            raise TypeError("the partial has no decayed sum")
        return decayed.at(at_us)

    return finish


def _values(partial: Partial, position: int) -> Values:
    values = partial.extras[position]
    if not isinstance(values, Values):
        raise TypeError("the partial has no values")
    return values


def _least(column: ColumnPartial) -> float:
    """Return the least value; NaN only if all values are NaN."""
    return float("nan") if column.least is None else column.least


def _greatest(column: ColumnPartial) -> float:
    """Return the greatest value, which is NaN if any value is."""
    return float("nan") if column.nans or column.greatest is None else column.greatest


def _shown(value: float, family: Family, unit: int) -> object:
    if family is Family.DECIMAL:
        return decimal_text(int(value), unit)
    # The result must not depend on the order of the equal values -0.0 and 0.0, so -0.0 becomes 0.0.
    return value + 0.0 if family is Family.FLOAT else value
