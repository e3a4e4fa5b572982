"""Conversions of ints, floats, truth values and decimals."""

import math
import re
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from caraway.dtypes import values as v
from caraway.dtypes.types import FLOAT, INT, BoolType, DecimalType, FloatType, IntType, type_name
from caraway.errors import InvalidInputError, quoted

_NUMERIC = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*|\s*[+-]?inf(inity)?\s*", re.IGNORECASE | re.ASCII)
_TRUTH = {"true": True, "false": False}
# JSON has no infinities, so they are written as these words, which Python's float() can read.
_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}
_INTS = frozenset({"int64", "Int64", "int64[pyarrow]"})
_FLOATS = frozenset({"float64", "Float64", "double[pyarrow]"})


def _int(value: Any) -> int:
    if type(value) is not int:
        value = _to_int(value)
    if v.INT_MIN <= value <= v.INT_MAX:
        return value  # type: ignore[no-any-return]
    raise InvalidInputError(f"expected int, found {quoted(value)}, which doesn't fit 64 bits")


def _to_int(value: Any) -> int:
    if isinstance(value, (bool, np.bool_, int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return int(value)
    if isinstance(value, (str, Decimal)):
        try:
            number = Decimal(value) if isinstance(value, Decimal) or _NUMERIC.fullmatch(value) else Decimal("nan")
        except InvalidOperation:
            raise v.mismatch("int", value) from None
        # An integer of more than 20 digits doesn't fit 64 bits, so it is refused before it is converted: 1e1000000
        # would become an int of a million digits.
        if number.is_finite() and number.adjusted() < 20 and number == number.to_integral_value():
            return int(number)
    raise v.mismatch("int", value)


def _float(value: Any) -> float:
    if type(value) is float and value == value:  # noqa: PLR0124 (NaN is null)
        return value
    if isinstance(value, str):
        number = float(value) if _NUMERIC.fullmatch(value) else None
    elif isinstance(value, (float, np.floating, int, np.integer, np.bool_, Decimal)):
        try:
            number = float(value)
        except OverflowError:
            number = None
    else:
        number = None
    if number is None or number != number:  # noqa: PLR0124 (NaN is null)
        raise v.mismatch("float", value)
    return number


def _float_or_nan(value: Any) -> float:
    # JSON has no NaN, so the server's answers contain the text "NaN" in its place.
    return math.nan if value == v.NAN_WORD else _float(value)


def _bool(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, str) and value.lower() in _TRUTH:
        return _TRUTH[value.lower()]
    if isinstance(value, (int, np.integer, float, np.floating)) and not v.is_null(value):
        return bool(value)
    raise v.mismatch("bool", value)


def _decimal(dtype: DecimalType) -> v.Convert:
    expected, step = type_name(dtype), Decimal(1).scaleb(-dtype.scale)

    def to_decimal(value: Any) -> str:
        is_float = isinstance(value, (float, np.floating)) and not v.is_null(value)
        if not is_float and (
            isinstance(value, (bool, np.bool_)) or not isinstance(value, (Decimal, int, np.integer, str))
        ):
            raise v.mismatch(expected, value)
        try:
            with localcontext(prec=v.DECIMAL_DIGITS):
                number = Decimal(float(value) if is_float else int(value) if isinstance(value, np.integer) else value)
                rounded = number.quantize(step)
        except InvalidOperation:
            raise v.mismatch(f"{expected} of at most {v.DECIMAL_DIGITS} digits", value) from None
        if not rounded.is_finite() or (not is_float and rounded != number):
            raise v.mismatch(expected, value)
        return format(abs(rounded) if rounded == 0 else rounded, "f")

    return to_decimal


def json_float(value: float) -> float | str:
    """Return a float as JSON has it: NaN and the infinities as words."""
    return value if math.isfinite(value) else _NOT_FINITE.get(value, v.NAN_WORD)


def _is_float(value: Any, _dtype: FloatType, widen: bool) -> bool:
    is_float = isinstance(value, (float, np.floating)) and not v.is_null(value)
    return is_float or (widen and v.conforms(value, INT))


def _is_decimal(value: Any, dtype: DecimalType, _widen: bool) -> bool:
    return isinstance(value, (Decimal, int, float)) and not isinstance(value, bool) and v.casts(value, dtype)


v.CONVERSIONS[IntType] = v.Conversions(
    written="int",
    cast=lambda _, __: _int,
    conforms=lambda value, _, __: isinstance(value, (int, np.integer)) and not isinstance(value, bool),
    arrow=lambda _: pa.int64(),
    python=(int, np.int64),
    pandas=(pd.Int64Dtype,),
    taken_from=_INTS.__contains__,
    strict=False,
)
v.CONVERSIONS[FloatType] = v.Conversions(
    written="float",
    cast=lambda _, manner: _float_or_nan if manner.takes_nan else _float,
    conforms=_is_float,
    arrow=lambda _: pa.float64(),
    python=(float, np.float64),
    pandas=(pd.Float64Dtype,),
    to_json=lambda _: json_float,
    from_json=lambda _: lambda value: math.nan if value == v.NAN_WORD else v.cast(FLOAT)(value),
    taken_from=(_INTS | _FLOATS).__contains__,
    strict=False,
)
v.CONVERSIONS[BoolType] = v.Conversions(
    written="bool",
    cast=lambda _, __: _bool,
    conforms=lambda value, _, __: isinstance(value, (bool, np.bool_)),
    arrow=lambda _: pa.bool_(),
    python=(bool,),
    pandas=(pd.BooleanDtype,),
    taken_from=frozenset({"bool", "boolean", "bool[pyarrow]"}).__contains__,
    strict=False,
)
v.CONVERSIONS[DecimalType] = v.Conversions(
    written="Decimal[n]",
    cast=lambda dtype, _: _decimal(dtype),
    conforms=_is_decimal,
    arrow=lambda dtype: pa.decimal128(v.DECIMAL_DIGITS, dtype.scale),
    decode=lambda _: Decimal,
)
