"""Aggregates of lists of values, computed exactly and rounded once."""

import decimal
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tests.unit.oracle.plain import SECOND, Aggregated

LEAST, GREATEST = -(2**63), 2**63 - 1
# So many digits decide on which side of the middle between two floats a root lies.
DIGITS = 400
SMALLEST = math.exp(-25)


def value_of(wanted: Aggregated, entries: list[tuple[int, Any]], at: int) -> Any:
    """Return an aggregate of values.

    Args:
        wanted: The aggregate.
        entries: Each row's time and its value of the column, in order of time and arrival.
        at: The time of the read.
    """
    present = [value for _, value in entries if value is not None]
    values = present if wanted.dropnull else [value for _, value in entries]
    match wanted.function:
        case "count":
            return len(distinct(values)) if wanted.unique else len(values)
        case "sum":
            return summed(present, wanted.zero)
        case "distinct":
            return distinct(values)
        case "last_k":
            newest = values[::-1]
            return (distinct(newest) if wanted.dedup else newest)[: wanted.limit]
        case "first_k":
            return (distinct(values) if wanted.dedup else values)[: wanted.limit]
        case "exp_decay_sum":
            return decayed([(time, value) for time, value in entries if value is not None], wanted.half_life, at)
    if not present:
        return wanted.default
    match wanted.function:
        case "average":
            return rounded(mean(present))
        case "variance":
            return rounded(variance(present))
        case "stddev":
            return root(variance(present))
        case "min":
            return unsigned(min(present))
        case "max":
            return unsigned(max(present))
        case "quantile":
            return float(sorted(present)[min(len(present) - 1, math.floor(wanted.p * len(present)))])
    raise AssertionError(wanted.function)


def distinct(values: list[Any]) -> list[Any]:
    """Return each value once, where it occurs first."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def summed(values: list[Any], zero: Any) -> Any:
    """Return a sum: of ints null beyond 64 bits, of floats rounded once, of decimals with their scale."""
    total = sum((Fraction(value) for value in values), Fraction(0))
    if isinstance(zero, float):
        return rounded(total)
    if isinstance(zero, Decimal):
        return sum(values, zero)
    return int(total) if LEAST <= total <= GREATEST else None


def mean(values: list[Any]) -> Fraction:
    return sum((Fraction(value) for value in values), Fraction(0)) / len(values)


def variance(values: list[Any]) -> Fraction:
    """Return the population variance."""
    middle = mean(values)
    return sum(((Fraction(value) - middle) ** 2 for value in values), Fraction(0)) / len(values)


def rounded(exact: Fraction) -> float:
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.copysign(math.inf, exact)


def root(square: Fraction) -> float:
    with decimal.localcontext() as context:
        context.prec = DIGITS
        return float((Decimal(square.numerator) / Decimal(square.denominator)).sqrt())


def unsigned(value: Any) -> Any:
    """Return an extreme, in which a zero has no sign."""
    return 0.0 if isinstance(value, float) and value == 0.0 else value


def decayed(entries: list[tuple[int, Any]], half_life: int, at: int) -> float:
    """Return the sum of values that have been halved once in each half-life since their times in whole seconds.

    A half of infinity is infinity, however often it is halved.
    """
    total = math.fsum(
        float(value) * (1.0 if math.isinf(value) else 2.0 ** (-(at - time // SECOND * SECOND) / half_life))
        for time, value in entries
    )
    return total if abs(total) >= SMALLEST else 0.0
