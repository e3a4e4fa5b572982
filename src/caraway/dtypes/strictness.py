"""Checks that a Python value is of a type without any conversion, for constants in definitions."""

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from caraway.dtypes.annotations import STRUCT_ATTRIBUTE
from caraway.dtypes.types import (
    INT,
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
)
from caraway.dtypes.values import cast, is_null
from caraway.errors import InvalidInputError


def conforms(value: Any, dtype: DataType, *, widen: bool = False) -> bool:  # noqa: C901, PLR0911 (a case a kind)
    """Return whether `value` is of `dtype` without conversion: 1 is no float, 0.0 no int, "1" no number.

    Args:
        value: Any value.
        dtype: The type.
        widen: True if ints are floats as well.
    """
    match dtype:
        case OptionalType(of):
            return is_null(value) or conforms(value, of, widen=widen)
        case IntType():
            return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        case FloatType():
            is_float = isinstance(value, (float, np.floating)) and not is_null(value)
            return is_float or (widen and conforms(value, INT))
        case BoolType():
            return isinstance(value, (bool, np.bool_))
        case StringType():
            return isinstance(value, str)
        case BytesType():
            return isinstance(value, bytes)
        case DatetimeType():
            # An int is an instant as well: an epoch offset.
            is_instant = isinstance(value, (datetime, pd.Timestamp, np.datetime64)) and not is_null(value)
            return is_instant or (conforms(value, INT) and _casts(value, dtype))
        case DateType():
            return isinstance(value, date)
        case DecimalType():
            return isinstance(value, (Decimal, int, float)) and not isinstance(value, bool) and _casts(value, dtype)
        case EmbeddingType(dim):
            return isinstance(value, (list, np.ndarray)) and len(value) == dim and _casts(value, dtype)
        case ListType(of):
            return isinstance(value, (list, np.ndarray)) and all(conforms(item, of, widen=widen) for item in value)
        case MapType(of):
            pairs = _pairs(value)
            return pairs is not None and all(
                isinstance(key, str) and conforms(item, of, widen=widen) for key, item in pairs
            )
        case StructType(_, fields):
            if hasattr(type(value), STRUCT_ATTRIBUTE):
                value = vars(value)
            return isinstance(value, Mapping) and all(
                conforms(value.get(name), inner, widen=widen) for name, inner in fields
            )
        case BetweenType(of) | OneOfType(of):
            return conforms(value, of, widen=widen) and _casts(value, dtype)
        case RegexType():
            return isinstance(value, str) and _casts(value, dtype)


def _pairs(value: Any) -> list[tuple[Any, Any]] | None:
    """Return the entries of a map, given as a dict or as pairs; None if the value isn't one."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (list, tuple)) and all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in value):
        return [(key, item) for key, item in value]
    return None


def _casts(value: Any, dtype: DataType) -> bool:
    try:
        cast(dtype)(value)
    except InvalidInputError:
        return False
    return True
