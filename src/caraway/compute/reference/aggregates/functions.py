"""Each aggregate as a function of the rows in its window, computed from first principles."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from caraway.compute.reference.aggregates.numbers import Number, number_of, rank, rounded, stored_sum, total
from caraway.compute.reference.tables import identity
from caraway.dtypes.durations import US_PER_SECOND
from caraway.dtypes.types import INT, DataType
from caraway.dtypes.values import normal
from caraway.graph.aggregates import AggregateFunction, AggregateSpec

# A decayed sum whose magnitude is below e^-25 is returned as 0. The index of the server, with which this engine is
# compared in tests, applies the same limit.
NOTHING_LEFT = math.exp(-25)


class Sample(NamedTuple):
    """A row's time and its value of the aggregated column, which is None if the aggregate reads no column."""

    time_us: int
    value: Any


# A function that computes an aggregate. Its first argument has the rows in the window, in order of time and then of
# arrival, and the second is the time of the read.
Compute = Callable[[Sequence[Sample], int], object]


def compiled(spec: AggregateSpec, found: DataType | None) -> Compute:
    """Return the function that computes an aggregate.

    Args:
        spec: The aggregate.
        found: The type of the column that it reads; None for a count that reads none.
    """
    of = found or INT
    match spec.function:
        case AggregateFunction.COUNT:
            return _count(spec)
        case AggregateFunction.DISTINCT:
            return lambda samples, _: list(_distinct(_listed(spec, samples)))
        case AggregateFunction.LAST_K:
            return lambda samples, _: _first_k(spec, _listed(spec, reversed(samples)))
        case AggregateFunction.FIRST_K:
            return lambda samples, _: _first_k(spec, _listed(spec, samples))
        case AggregateFunction.EXP_DECAY_SUM:
            return _exp_decay_sum(spec, of)
        case AggregateFunction.SUM:
            number = number_of(of)
            return lambda samples, _: stored_sum([number(value) for value in _present(samples)], of, spec.into)
        case AggregateFunction.AVERAGE:
            return _of_numbers(spec, of, _mean)
        case AggregateFunction.STDDEV:
            return _of_numbers(spec, of, _population_stddev)
        case AggregateFunction.VARIANCE:
            return _of_numbers(spec, of, _population_variance)
        case AggregateFunction.MIN:
            return _extreme(spec, of, min)
        case AggregateFunction.MAX:
            return _extreme(spec, of, max)
        case AggregateFunction.QUANTILE:
            return _quantile(spec, of)


def _present(samples: Iterable[Sample]) -> list[Any]:
    """Return the values without nulls."""
    return [sample.value for sample in samples if sample.value is not None]


def _listed(spec: AggregateSpec, samples: Iterable[Sample]) -> list[Any]:
    """Return the values, with nulls unless the aggregate drops them."""
    return _present(samples) if spec.dropnull else [sample.value for sample in samples]


def _distinct(values: Iterable[Any]) -> Iterable[Any]:
    """Return each value once, at its first position; its form doesn't show which of equal values came first."""
    firsts: dict[object, Any] = {}
    for value in values:
        firsts.setdefault(identity(value), normal(value))
    return firsts.values()


def _first_k(spec: AggregateSpec, values: Sequence[Any]) -> list[Any]:
    return list(_distinct(values) if spec.dedup else values)[: spec.limit]


def _count(spec: AggregateSpec) -> Compute:
    if spec.unique:
        return lambda samples, _: len({identity(value) for value in _listed(spec, samples)})
    return lambda samples, _: len(_listed(spec, samples))


def _of_numbers(spec: AggregateSpec, of: DataType, function: Callable[[Sequence[Any]], float]) -> Compute:
    """Return an aggregate that applies a function to the numbers, if there are any."""
    number = number_of(of)

    def compute(samples: Sequence[Sample], _at_us: int) -> object:
        values = [number(value) for value in _present(samples)]
        return function(values) if values else spec.default

    return compute


def _mean(numbers: Sequence[Number]) -> float:
    """Return the mean of at least one number, rounded once."""
    return rounded(total(numbers) / len(numbers))


def _population_stddev(numbers: Sequence[Number]) -> float:
    """Return the population standard deviation of at least one number, rounded once; NaN if one isn't finite."""
    if isinstance(total(numbers), float):
        return math.nan
    try:
        return float(statistics.pstdev([Fraction(number) for number in numbers]))
    except OverflowError:
        return math.inf


def _population_variance(numbers: Sequence[Number]) -> float:
    """Return the population variance of at least one number, rounded once; NaN if one isn't finite."""
    if isinstance(total(numbers), float):
        return math.nan
    return rounded(statistics.pvariance([Fraction(number) for number in numbers]))


def _extreme(spec: AggregateSpec, of: DataType, pick: Callable[..., Any]) -> Compute:
    number = number_of(of)

    def compute(samples: Sequence[Sample], _at_us: int) -> object:
        values = _present(samples)
        if not values:
            return spec.default
        found = pick(values, key=lambda value: rank(number(value)))
        # The result must not show which of two equal zeros came first: -0.0 + 0.0 is 0.0.
        return found + 0.0 if isinstance(found, float) else found

    return compute


def _quantile(spec: AggregateSpec, of: DataType) -> Compute:
    """Return an aggregate that takes the element at `floor(p * n)` of the sorted values, without interpolation."""
    number = number_of(of)

    def compute(samples: Sequence[Sample], _at_us: int) -> object:
        values = sorted((number(value) for value in _present(samples)), key=rank)
        if not values:
            return spec.default
        position = min(len(values) - 1, math.floor((spec.p or 0.0) * len(values)))
        return rounded(values[position]) + 0.0

    return compute


def _exp_decay_sum(spec: AggregateSpec, of: DataType) -> Compute:
    """Return an aggregate that adds up `v * 2^(-(T - t) / half_life)`, with t in whole seconds."""
    number, half_life_us = number_of(of), spec.half_life_us or US_PER_SECOND

    def compute(samples: Sequence[Sample], at_us: int) -> object:
        decayed = []
        for time_us, value in samples:
            if value is not None:
                age_us = at_us - time_us // US_PER_SECOND * US_PER_SECOND
                amount = rounded(number(value))
                # The weight of an old value is never zero, but it may be rounded to 0.0, and infinity times 0.0 is NaN.
                # So an infinite value isn't multiplied by its weight: it stays infinite for ever.
                decayed.append(amount if math.isinf(amount) else amount * 2.0 ** (-age_us / half_life_us))
        result = rounded(total(decayed))
        return 0.0 if abs(result) < NOTHING_LEFT else result

    return compute
