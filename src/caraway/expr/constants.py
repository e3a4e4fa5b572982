"""Conversion of Python values to literal nodes, whose values are in stored form (docs/inside/records.md)."""

from typing import Any

from caraway.dtypes.annotations import STRUCT_ATTRIBUTE
from caraway.dtypes.types import BOOL, FLOAT, INT, STRING, DataType, FloatType, base_type, strip_optional, type_name
from caraway.dtypes.values import INT_MAX, INT_MIN, cast, conforms, is_null
from caraway.errors import DefinitionError, DefinitionTypeError, InvalidInputError
from caraway.expr.nodes import Literal

NULL = Literal(value=None, dtype=None)


def literal(value: object) -> Literal:
    """Return the literal of a bool, int, float, str or None."""
    match value:
        case None:
            return NULL
        case bool():
            return Literal(value=value, dtype=BOOL)
        case int():
            if not INT_MIN <= value <= INT_MAX:
                raise DefinitionError(f"lit: {value} doesn't fit a 64-bit int")
            return Literal(value=int(value), dtype=INT)
        case float():
            return Literal(value=float(value), dtype=FLOAT)
        case str():
            return Literal(value=str(value), dtype=STRING)
        case _:
            raise DefinitionTypeError(
                f"lit: a constant of type {type(value).__name__} needs its type: lit(value, type), found {value!r}"
            )


def typed_literal(value: object, declared: DataType) -> Literal:
    """Return the literal of a value that has a declared type; the only conversion is from int to float.

    The literal of a value that isn't null has the type inside of a declared optional.
    """
    dtype = strip_optional(declared)
    if value is None:
        return NULL
    if isinstance(base_type(dtype), FloatType) and isinstance(value, float) and is_null(value):
        return Literal(value=value, dtype=FLOAT)
    try:
        stored = cast(dtype)(value)
    except InvalidInputError as error:
        raise DefinitionError(f"lit({_shown(value)}, {type_name(dtype)}): {error}") from None
    if not conforms(value, dtype, widen=True):
        raise DefinitionError(
            f"lit({_shown(value)}, {type_name(dtype)}): the value is {type(value).__name__}, not "
            f"{type_name(dtype)}; only an int is converted, to a float"
        )
    return Literal(value=stored, dtype=dtype)


def _shown(value: Any) -> str:
    return f"{type(value).__name__}(…)" if hasattr(type(value), STRUCT_ATTRIBUTE) else repr(value)[:100]
