"""The functions of lists, and the equality of values, for the plain evaluator."""

import math
from typing import Any

from caraway.dtypes.types import FLOAT, DataType, base_type
from caraway.expr.nodes import ListFunction


def equal(left: Any, right: Any) -> bool:
    """Return whether values are equal: NaN equals itself, as does a null inside; lists and structs are lists."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(equal(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(item, right[key]) for key, item in left.items())
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return bool(left == right)


def contains(values: list[Any] | None, item: Any) -> bool | None:
    """Return the result by the truth table of the specification, from its first row to its last."""
    if values is None:
        return None
    if not values:
        return False
    if item is None:
        return None
    if any(value is not None and equal(value, item) for value in values):
        return True
    return None if None in values else False


def list_call(function: ListFunction, values: list[Any], element: DataType) -> Any:
    match function:
        case ListFunction.LEN:
            return len(values)
        case ListFunction.HAS_NULL:
            return None in values
        case ListFunction.ANY:
            return True if True in values else None if None in values else False
    if None in values:
        return None
    match function:
        case ListFunction.ALL:
            return all(values)
        case ListFunction.SUM if base_type(element) == FLOAT:
            return added(values)
        case ListFunction.SUM:
            return (sum(values) + 2**63) % 2**64 - 2**63
        case ListFunction.MEAN:
            return added(values) / len(values) if values else None
        case ListFunction.MIN | ListFunction.MAX if not values:
            return None
        case ListFunction.MIN | ListFunction.MAX:
            least, *_, greatest = sorted([*values, *values], key=lambda value: (math.isnan(value), value))
            found = least if function is ListFunction.MIN else greatest
            # The result has no negative zero.
            return found + 0.0 if isinstance(found, float) else found


def added(values: list[float]) -> float:
    total = 0.0
    for value in values:
        total += float(value)
    return total
