"""Checks of arguments of expression methods that are Python values and can't be expressions."""

from typing import Any

from caraway.dtypes.annotations import dtype_of, spell
from caraway.dtypes.types import StructType
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.expr.nodes import TimeUnit


def time_unit(unit: object) -> TimeUnit:
    """Return a unit of time that is given as a `TimeUnit` or by its name in any case."""
    if isinstance(unit, TimeUnit):
        return unit
    try:
        return TimeUnit(str(unit).lower())
    except ValueError:
        raise DefinitionError(f"unknown unit of time {unit!r}; units: {', '.join(TimeUnit)}") from None


def plain_text(operation: str, parameter: str, value: object) -> str:
    """Return an argument that must be a str."""
    if not isinstance(value, str):
        raise DefinitionTypeError(f"{operation}: {parameter} is a plain str, not {type(value).__name__} {value}")
    return str(value)


def plain_int(operation: str, parameter: str, value: object) -> int:
    """Return an argument that must be an int."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise DefinitionTypeError(f"{operation}: {parameter} is a plain int, not {type(value).__name__} {value}")
    return int(value)


def zone(operation: str, value: object) -> str:
    """Return the name of a time zone; None is UTC. The zone's existence is checked later, by the inference of types."""
    return "UTC" if value is None else plain_text(operation, "timezone", value)


def struct_type(operation: str, cls: Any) -> StructType:
    """Return the data type of a class that `@struct` made."""
    dtype = dtype_of(cls)
    if not isinstance(dtype, StructType):
        raise DefinitionTypeError(f"{operation} makes instances of a @struct class, not of {spell(cls)}")
    return dtype
