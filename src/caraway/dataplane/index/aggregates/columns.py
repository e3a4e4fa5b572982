"""Functions that turn stored values of a column into values for partial aggregates."""

from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any

import msgspec

from caraway.dtypes.types import (
    BoolType,
    BytesType,
    DataType,
    DecimalType,
    FloatType,
    IntType,
    StringType,
    base_type,
    stored_type,
)
from caraway.dtypes.values import normal, same
from caraway.errors import InvalidInputError

Read = Callable[[Any], Any]

_ENCODE = msgspec.msgpack.Encoder(order="deterministic").encode
_DECODE = msgspec.msgpack.Decoder().decode


class Family(Enum):
    """How the values of a column are summed."""

    INT = "int"
    FLOAT = "float"
    DECIMAL = "decimal"
    ANY = "any"


def family_of(dtype: DataType) -> tuple[Family, int]:
    """Return the family of a type, and how many of its smallest units make the number one."""
    if isinstance(base := base_type(dtype), DecimalType):
        return Family.DECIMAL, 10**base.scale
    match stored_type(dtype):
        case IntType():
            return Family.INT, 1
        case FloatType():
            return Family.FLOAT, 1
        case _:
            return Family.ANY, 1


def number_reader(name: str, dtype: DataType) -> Read:
    """Return a function that reads a stored value as a number, a decimal in its smallest units; None stays None.

    For types without numbers the function only returns whether there is a value. It raises `InvalidInputError` for a
    value of another type.
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
    """Return a function that reads a stored number as the nearest float; None stays None."""
    read, (_, unit) = number_reader(name, dtype), family_of(dtype)
    return lambda value: None if value is None else read(value) / unit


def identity_reader(name: str, dtype: DataType) -> Read:
    """Return a function that reads a stored value as an identity: hashable, and equal exactly for equal values."""
    plain = _plain_type(dtype)
    if plain is float:
        read = number_reader(name, dtype)
        return lambda value: normal(read(value))
    if plain is None:
        return lambda value: None if value is None else _ENCODE(normal(value))
    family, _ = family_of(dtype)
    return lambda value: value if value is None or type(value) is plain else _refused(name, value, family)


def restorer(dtype: DataType) -> Callable[[Any], Hashable]:
    """Return a function that restores an identity from what was read from a tile."""
    return normal if _plain_type(dtype) is float else same


def shower(dtype: DataType) -> Read:
    """Return a function that converts an identity to a stored value."""
    if _plain_type(dtype) is None:
        return lambda identity: None if identity is None else _DECODE(identity)
    return same


def decimal_text(units: int, unit: int) -> str:
    """Return a number of smallest units as the text of a decimal, with all digits of its scale."""
    if unit == 1:
        return str(units)
    whole, fraction = divmod(abs(units), unit)
    return f"{'-' if units < 0 else ''}{whole}.{fraction:0{len(str(unit)) - 1}d}"


def _plain_type(dtype: DataType) -> type | None:
    """Return the Python type of stored values that can be hashed as they are; None for those that can't."""
    match stored_type(dtype):
        case IntType():
            return int
        case FloatType():
            return float
        case BoolType():
            return bool
        case StringType():
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


def _refused(name: str, value: object, family: Family) -> Any:
    raise _mistyped(name, value, family)
