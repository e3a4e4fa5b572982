"""Exact arithmetic over columns, with a single rounding at the end (docs/inside/records.md, Exact sums)."""

import math
import warnings
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from caraway.dtypes.types import DataType, DecimalType, IntType, base_type, type_name
from caraway.dtypes.values import DECIMAL_DIGITS, INT_MAX, INT_MIN

Number = int | float | Fraction
# An exact sum, which is a float if it is infinite or NaN, since these aren't fractions.
Total = Fraction | float


def number_of(dtype: DataType) -> Callable[[Any], Number]:
    """Return the conversion of a stored value to a number; only decimals, which are stored as text, need one."""
    return Fraction if isinstance(base_type(dtype), DecimalType) else _same


def total(numbers: Sequence[Number]) -> Total:
    """Return the exact sum of numbers; infinities and NaN among them are added as IEEE 754 does.

    All numbers get a common denominator, so that only one fraction has to be reduced, at the end.
    """
    special = [number for number in numbers if isinstance(number, float) and not math.isfinite(number)]
    if special:
        return sum(special)
    ratios = [number.as_integer_ratio() for number in numbers]
    common = math.lcm(*{denominator for _, denominator in ratios})
    return Fraction(sum(numerator * (common // denominator) for numerator, denominator in ratios), common)


def rounded(number: Total) -> float:
    """Return the nearest float; an infinite one beyond the range of floats."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def stored_sum(numbers: Sequence[Number], dtype: DataType, name: str) -> object:
    """Return the sum of a column's numbers in stored form; null, with a warning, if it doesn't fit the type."""
    return stored_total(total(numbers), dtype, name)


def stored_total(exact: Total, dtype: DataType, name: str) -> object:
    """Return an exact sum in the stored form of a column's type; null, with a warning, if it doesn't fit the type."""
    match base_type(dtype):
        case IntType():
            whole = int(exact)
            if INT_MIN <= whole <= INT_MAX:
                return whole
            _too_great(name, whole, "64 bits")
        case DecimalType(scale) as decimal:
            units = int(exact * 10**scale)
            if abs(units) < 10**DECIMAL_DIGITS:
                return _decimal_text(units, scale)
            _too_great(name, units, f"the {DECIMAL_DIGITS} digits of {type_name(decimal)}")
        case _:
            return rounded(exact)
    return None


def rank(value: Any) -> Any:
    """Return a key that orders the values of a column, with NaN after all numbers."""
    return (value != value, value)  # noqa: PLR0124


def _same(value: Any) -> Any:
    return value


def _too_great(name: str, value: int, limit: str) -> None:
    # The sum is null instead of an error, as in the index: there, an error would fail a request for many features
    # because of one sum (docs/inside/records.md).
    warnings.warn(
        f"aggregate: {name}: a sum of {value} doesn't fit {limit} and reads as null; sum floats, or a shorter window",
        RuntimeWarning,
        stacklevel=2,
    )


def _decimal_text(units: int, scale: int) -> str:
    whole, fraction = divmod(abs(units), 10**scale)
    digits = f".{fraction:0{scale}d}" if scale else ""
    return f"{'-' if units < 0 else ''}{whole}{digits}"
