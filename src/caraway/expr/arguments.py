"""Checks of the plain arguments of expression methods, made where they are passed."""

from typing import Any

from caraway.dtypes.annotations import dtype_of, spell
from caraway.dtypes.types import StructType
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.expr.nodes import TimeUnit


def time_unit(unit: object) -> TimeUnit:
    """Return a unit of time, given as itself or as a word in any case.

    Raises `DefinitionError` if there is no such unit.
    """
    if isinstance(unit, TimeUnit):
        return unit
    try:
        return TimeUnit(str(unit).lower())
    except ValueError:
        raise DefinitionError(f"unknown unit of time {unit!r}; units: {', '.join(TimeUnit)}") from None


def plain_text(operation: str, parameter: str, value: object) -> str:
    """Return a plain text, which no expression may replace. Raises `DefinitionTypeError` if the value isn't a str."""
    if not isinstance(value, str):
        raise DefinitionTypeError(f"{operation}: {parameter} is a plain str, not {type(value).__name__} {value}")
    return str(value)


def plain_int(operation: str, parameter: str, value: object) -> int:
    """Return a plain int, which no expression may replace. Raises `DefinitionTypeError` if the value isn't an int."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise DefinitionTypeError(f"{operation}: {parameter} is a plain int, not {type(value).__name__} {value}")
    return int(value)


def zone(operation: str, value: object) -> str:
    """Return the name of a time zone; None is UTC. Inference of types checks later that the zone exists.

    Raises `DefinitionTypeError` if the value is neither a str nor None.
    """
    return "UTC" if value is None else plain_text(operation, "timezone", value)


def struct_type(operation: str, cls: Any) -> StructType:
    """Return the type of a class made by `@struct`.

    Raises `DefinitionTypeError` if the class wasn't made by `@struct`.
    """
    dtype = dtype_of(cls)
    if not isinstance(dtype, StructType):
        raise DefinitionTypeError(f"{operation} makes instances of a @struct class, not of {spell(cls)}")
    return dtype
