"""Checks that stored values keep to their type: nulls only where they may be, restrictions, lengths.

They are for values that were computed. Values that were cast need no check.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from caraway.dtypes.types import (
    BetweenType,
    DataType,
    EmbeddingType,
    ListType,
    MapType,
    OneOfType,
    OptionalType,
    RegexType,
    StructType,
    type_name,
)
from caraway.dtypes.values import cast
from caraway.errors import InvalidInputError

Check = Callable[[Any], object]


@lru_cache(maxsize=4096)
def verify(dtype: DataType) -> Check:
    """Compile the check of a stored value.

    The function raises `InvalidInputError` with the position, the expected type and the value found.
    """
    if isinstance(dtype, OptionalType):
        inner = _inside(dtype.of)
        return _nothing if inner is None else lambda value: None if value is None else inner(value)
    inside = _inside(dtype)

    def check(value: Any) -> None:
        if value is None:
            raise InvalidInputError(f"expected {type_name(dtype)}, found null")
        if inside is not None:
            inside(value)

    return check


def _nothing(_value: Any) -> None:
    """Accept any value."""


def _inside(dtype: DataType) -> Check | None:
    """Compile the check of a value that isn't null; None if there is nothing to check."""
    match dtype:
        case BetweenType() | OneOfType() | RegexType():
            return cast(dtype)
        case ListType(of):
            return _each(f"{type_name(dtype)}, element", verify(of))
        case MapType(of):
            return _each_value(f"{type_name(dtype)}, key", verify(of))
        case StructType(name, fields):
            return _fields(name, [(field, verify(inner)) for field, inner in fields])
        case EmbeddingType():
            return _length(dtype)
        case _:
            return None


def _at(place: str, check: Check, value: Any) -> None:
    try:
        check(value)
    except InvalidInputError as error:
        raise InvalidInputError(f"{place}: {error}") from None


def _each(place: str, check: Check) -> Check:
    def check_all(value: list[Any]) -> None:
        for position, item in enumerate(value):
            _at(f"{place} {position}", check, item)

    return check_all


def _each_value(place: str, check: Check) -> Check:
    def check_all(value: dict[str, Any]) -> None:
        for key, item in value.items():
            _at(f'{place} "{key}"', check, item)

    return check_all


def _fields(struct: str, checks: list[tuple[str, Check]]) -> Check:
    def check_all(value: list[Any]) -> None:
        for (name, check), item in zip(checks, value, strict=True):
            _at(f"struct {struct}, field {name}", check, item)

    return check_all


def _length(dtype: EmbeddingType) -> Check:
    def check(value: list[float]) -> None:
        if len(value) != dtype.dim:
            raise InvalidInputError(f"expected {type_name(dtype)}, found {len(value)} elements")

    return check
