"""Checks that values from outside are in the stored form of a type (docs/records.md), for constants of a commit.

`caraway.dtypes.verifying` checks the results of expressions, whose form is right already; here a client may have sent
anything.
"""

from collections.abc import Callable
from typing import Any

from caraway.dtypes.instants import to_date, to_datetime
from caraway.dtypes.types import (
    BetweenType,
    BoolType,
    BytesType,
    DataType,
    DatetimeType,
    DateType,
    DecimalType,
    EmbeddingType,
    FloatType,
    IntType,
    ListType,
    MapType,
    OneOfType,
    OptionalType,
    RegexType,
    StringType,
    StructType,
    type_name,
)
from caraway.dtypes.values import cast, mismatch
from caraway.dtypes.verifying import verify
from caraway.errors import InvalidInputError


def check_stored(value: object, dtype: DataType) -> None:
    """Check that `value` is in the stored form of `dtype` and within its restrictions.

    Raises:
        InvalidInputError: The value isn't; the message names the type and the value found.
    """
    if not _has_form(value, dtype):
        raise mismatch(type_name(dtype), value)
    verify(dtype)(value)


def _has_form(value: Any, dtype: DataType) -> bool:
    match dtype:
        case OptionalType(of):
            return value is None or _has_form(value, of)
        case BetweenType(of) | OneOfType(of):
            return _has_form(value, of)
        case IntType() | FloatType() | BoolType() | StringType() | BytesType():
            return _casts_to_itself(value, dtype)
        case RegexType():
            return isinstance(value, str)
        case DatetimeType():
            return type(value) is int and _converts(to_datetime, value)
        case DateType():
            return type(value) is int and _converts(to_date, value)
        case DecimalType():
            return isinstance(value, str) and _casts_to_itself(value, dtype)
        case EmbeddingType():
            return isinstance(value, list) and all(type(item) is float for item in value)
        case ListType(of):
            return isinstance(value, list) and all(_has_form(item, of) for item in value)
        case MapType(of):
            return isinstance(value, dict) and all(_has_form(item, of) for item in value.values())
        case StructType(_, fields):
            return (
                isinstance(value, list)
                and len(value) == len(fields)
                and all(_has_form(item, of) for item, (_, of) in zip(value, fields, strict=True))
            )


def _casts_to_itself(value: object, dtype: DataType) -> bool:
    try:
        found = cast(dtype)(value)
    except InvalidInputError:
        return False
    return type(found) is type(value) and found == value


def _converts(convert: Callable[[int], object], value: int) -> bool:
    """Return whether a number of microseconds or days is in the years that Python supports."""
    try:
        convert(value)
    except (OverflowError, ValueError):
        return False
    return True
