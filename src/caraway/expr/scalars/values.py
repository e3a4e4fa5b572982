"""Comparison of stored values.

NaN equals itself and is greater than all other numbers. Inside of lists, dicts and structs null equals null.
"""

from collections.abc import Callable
from typing import Any

from caraway.dtypes.types import DataType, FloatType, ListType, MapType, StructType, base_type

Equal = Callable[[Any, Any], bool]


def equality(dtype: DataType) -> Equal:
    """Return the function that compares two values of a type, neither of them null."""
    match base_type(dtype):
        case FloatType():
            return same_floats
        case ListType(of):
            return _all_equal(_nullable(equality(of)))
        case MapType(of):
            inner = _all_equal(_nullable(equality(of)))
            # Two dicts with the same entries in another order aren't equal, as in polars, where a dict is a list of
            # entries.
            return lambda left, right: list(left) == list(right) and inner(list(left.values()), list(right.values()))
        case StructType(_, fields):
            equals = [_nullable(equality(of)) for _, of in fields]
            return lambda left, right: all(equal(a, b) for equal, a, b in zip(equals, left, right, strict=True))
        case _:
            return lambda left, right: bool(left == right)


def same_floats(left: float, right: float) -> bool:
    """Return whether two floats are equal."""
    return left == right or (left != left and right != right)  # noqa: PLR0124 (NaN)


def less(left: float, right: float) -> bool:
    """Return whether a float is less than another."""
    return left < right or (right != right and left == left)  # noqa: PLR0124


def at_most(left: float, right: float) -> bool:
    """Return whether a float is less than another or equal."""
    return left <= right or right != right  # noqa: PLR0124


def _nullable(equal: Equal) -> Equal:
    return lambda left, right: left is right if left is None or right is None else equal(left, right)


def _all_equal(equal: Equal) -> Equal:
    return lambda left, right: len(left) == len(right) and all(map(equal, left, right))
