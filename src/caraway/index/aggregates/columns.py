"""How a column's stored values enter partial aggregates."""

import math
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any

import msgspec

from caraway.dtypes.types import (
    BoolType,
    BytesType,
    DataType,
    DatetimeType,
    DateType,
    DecimalType,
    FloatType,
    IntType,
    StringType,
    base_type,
)
from caraway.errors import InvalidInputError

# All NaN are one value: this object, since NaN isn't equal to itself.
NAN = math.nan

Read = Callable[[Any], Any]

_ENCODE = msgspec.msgpack.Encoder(order="deterministic").encode
_DECODE = msgspec.msgpack.Decoder().decode


class Family(Enum):
    """How the values of a column are added up."""

    INT = "int"
    FLOAT = "float"
    DECIMAL = "decimal"
    ANY = "any"


def family_of(dtype: DataType) -> tuple[Family, int]:
    """Return the family of a type, and how many of its smallest units make one."""
    match base_type(dtype):
        case IntType() | DateType() | DatetimeType():
            return Family.INT, 1
        case FloatType():
            return Family.FLOAT, 1
        case DecimalType(scale):
            return Family.DECIMAL, 10**scale
        case _:
            return Family.ANY, 1


def number_reader(name: str, dtype: DataType) -> Read:
    """Return what reads a stored value as a number, a decimal in its smallest units; None as it is.

    Of a column without numbers only their presence is read. What is read raises `InvalidInputError` for a value that
    isn't of the type.
    """
    family, unit = family_of(dtype)
    match family:
        case Family.INT:
            return lambda value: value if value is None or type(value) is int else _refused(name, value, family)
        case Family.FLOAT:
            return lambda value: value if value is None or type(value) is float else _as_float(name, value)
        case Family.DECIMAL:
            digits = len(str(unit)) - 1
            return lambda value: None if value is None else _units(name, value, digits)
        case Family.ANY:
            return lambda value: None if value is None else True


def float_reader(name: str, dtype: DataType) -> Read:
    """Return what reads a stored number as the nearest float; None as it is."""
    read, (_, unit) = number_reader(name, dtype), family_of(dtype)
    return lambda value: None if value is None else read(value) / unit


def identity_reader(name: str, dtype: DataType) -> Read:
    """Return what reads a stored value as one that can be hashed, equal exactly for equal values."""
    plain = _plain_type(dtype)
    if plain is float:
        read = number_reader(name, dtype)
        return lambda value: _one_nan(read(value))
    if plain is None:
        return lambda value: None if value is None else _ENCODE(_normal(value))
    family, _ = family_of(dtype)
    return lambda value: value if value is None or type(value) is plain else _refused(name, value, family)


def restorer(dtype: DataType) -> Callable[[Any], Hashable]:
    """Return what makes an identity of one that was stored in a tile."""
    return _one_nan if _plain_type(dtype) is float else _same


def shower(dtype: DataType) -> Read:
    """Return what makes a stored value of an identity."""
    if _plain_type(dtype) is None:
        return lambda identity: None if identity is None else _DECODE(identity)
    return _same


def decimal_text(units: int, unit: int) -> str:
    """Spell a number of smallest units as a decimal with all digits of its scale."""
    if unit == 1:
        return str(units)
    whole, fraction = divmod(abs(units), unit)
    return f"{'-' if units < 0 else ''}{whole}.{fraction:0{len(str(unit)) - 1}d}"


def _plain_type(dtype: DataType) -> type | None:
    """Return the Python type of stored values that can be hashed as they are; None for those that can't."""
    match base_type(dtype):
        case IntType() | DateType() | DatetimeType():
            return int
        case FloatType():
            return float
        case BoolType():
            return bool
        case StringType() | DecimalType():
            return str
        case BytesType():
            return bytes
        case _:
            return None


def _as_float(name: str, value: object) -> float:
    if type(value) is int:
        return float(value)
    raise _mistyped(name, value, Family.FLOAT)


def _units(name: str, value: object, digits: int) -> int:
    if type(value) is str:
        whole, _, fraction = value.partition(".")
        if len(fraction) <= digits:
            try:
                return int(whole + fraction.ljust(digits, "0"))
            except ValueError:
                pass
    raise _mistyped(name, value, Family.DECIMAL)


def _mistyped(name: str, value: object, family: Family) -> InvalidInputError:
    return InvalidInputError(f"column {name} holds {value!r}, which is no {family.value}")


def _refused(name: str, value: object, family: Family) -> Any:  # noqa: ANN401 (never returns)
    raise _mistyped(name, value, family)


def _one_nan(value: Any) -> Any:  # noqa: ANN401 (a number or null)
    return value if value == value else NAN  # noqa: PLR0124 (NaN only)


def _normal(value: Any) -> Any:  # noqa: ANN401 (any stored value)
    """Give all NaN the same bytes, and zeros no sign."""
    match value:
        case float():
            return value + 0.0 if value == value else NAN  # noqa: PLR0124 (NaN only)
        case list():
            return [_normal(item) for item in value]
        case dict():
            return {key: _normal(item) for key, item in value.items()}
        case _:
            return value


def _same(value: Any) -> Any:  # noqa: ANN401
    return value
