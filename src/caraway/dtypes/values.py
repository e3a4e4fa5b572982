"""Conversions of the values of data types.

In the stored form of values (docs/inside/records.md) instants are int microseconds, days int, decimals text, and
structs lists of their fields. `cast(dtype)` compiles the function that converts a value from outside to the stored
form. The function is lenient where no information is lost: `"12"` and `12.0` are ints.

Each class of types has a row of conversions in `CONVERSIONS`. The module of its family registers it: `numbers`, `text`,
`times`, `containers`, `structs` or `restrictions`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from caraway.dtypes.types import (
    BetweenType,
    DataType,
    OneOfType,
    OptionalType,
    RegexType,
    strip_optional,
    type_name,
)
from caraway.errors import InvalidInputError, quoted

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
DECIMAL_DIGITS = 28

# JSON has no NaN, so answers and requests contain this text in its place.
NAN_WORD = "NaN"
# NaN isn't equal to itself, so a dict would count two NaN objects as two values. `normal` returns this one for each.
NAN = math.nan

Convert = Callable[[Any], Any]
# A function that raises `InvalidInputError` for a value that it refuses.
Check = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Manner:
    """The leniency of a cast.

    Attributes:
        strict_text: Numbers and truth values aren't cast to text. A key that one system writes as 1.50 and another as
            1.5 would otherwise become two keys, without an error.
        takes_nan: The word `NaN` is a float, so that a value from an answer can be sent in a request.
    """

    strict_text: bool = False
    takes_nan: bool = False


# The manner in which values in Python are cast, for example those that a program gives to the local client.
LENIENT = Manner()
# The manner in which values of rows that are logged over HTTP are cast.
ROWS = Manner(strict_text=True)
# The manner in which inputs of queries and keys of lookups over HTTP are cast.
INPUTS = Manner(strict_text=True, takes_nan=True)


def unchanged(_dtype: object) -> Convert:
    """Return the conversion that returns a value as it is."""
    return same


def same(value: Any) -> Any:
    """Return the value."""
    return value


def normal(value: Any) -> Any:
    """Return a stored value in the form that all values equal to it have: with one NaN, and with 0.0 for -0.0."""
    match value:
        case float():
            return value + 0.0 if value == value else NAN  # noqa: PLR0124 (NaN only)
        case list():
            return [normal(item) for item in value]
        case dict():
            return {key: normal(item) for key, item in value.items()}
        case _:
            return value


def _unchecked(_dtype: object) -> None:
    return None


def _objects_or_arrow(kind: str) -> bool:
    return kind == "object" or kind.endswith("[pyarrow]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversions:
    """The conversions of one class of data types.

    Attributes:
        written: The type as users write it, for messages.
        cast: Compiles the function from anything to the stored form, in a manner. It raises `InvalidInputError` naming
            the expected type and the value found.
        conforms: Returns whether a value is of a type without conversion; with `widen`, ints are floats as well.
        arrow: Returns the type of a column in Arrow.
        python: The Python classes that users write for a type without parameters, the usual one first.
        pandas: The classes of pandas that they may write.
        decode: Compiles the conversion from the stored form to Python's objects.
        to_json: Compiles the conversion from the stored form to JSON.
        from_json: Compiles the conversion from JSON to the stored form; None if the cast does it.
        has_form: Returns whether a value is in stored form; None if these are the values that a cast leaves unchanged.
        inside: Compiles the check of a stored value that isn't null; it returns None if there is nothing to check.
        to_arrow: Compiles the conversion from the stored form to Arrow's input; None if `decode` does it.
        taken_from: Returns whether a column that a user's function computed may have the pandas dtype of this name.
        strict: Values in such a column have to conform to the type; otherwise they are cast.
    """

    written: str
    cast: Callable[[Any, Manner], Convert]
    conforms: Callable[[Any, Any, bool], bool]
    arrow: Callable[[Any], pa.DataType]
    python: tuple[type, ...] = ()
    pandas: tuple[type, ...] = ()
    decode: Callable[[Any], Convert] = unchanged
    to_json: Callable[[Any], Convert] = unchanged
    from_json: Callable[[Any], Convert] | None = None
    has_form: Callable[[Any, Any], bool] | None = None
    inside: Callable[[Any], Check | None] = _unchecked
    to_arrow: Callable[[Any], Convert] | None = None
    taken_from: Callable[[str], bool] = _objects_or_arrow
    strict: bool = True


# The conversions of each class of data types.
CONVERSIONS: dict[type, Conversions] = {}


# The types none of whose values stands for null. Most values are of these types, so `is_null` checks for them early.
NEVER_NULL: frozenset[type] = frozenset({str, int, bool, bytes, list, dict, Decimal})


def is_null(value: Any) -> bool:
    """Return whether a value stands for null: None, pd.NA, NaT or NaN."""
    if value is None or value is pd.NA or value is pd.NaT:
        return True
    if type(value) in NEVER_NULL:
        return False
    if isinstance(value, (float, np.floating)):
        return bool(value != value)  # noqa: PLR0124 (NaN only)
    return isinstance(value, np.datetime64) and bool(np.isnat(value))


def mismatch(expected: str, value: Any) -> InvalidInputError:
    """Return the error for a value that isn't of the expected type."""
    if is_null(value):
        return InvalidInputError(f"expected {expected}, found null")
    return InvalidInputError(f"expected {expected}, found {type(value).__name__} {quoted(value)[:100]}")


@lru_cache(maxsize=4096)
def cast(dtype: DataType, manner: Manner = LENIENT) -> Convert:
    """Compile the cast to a type; the manner holds for its inner types too.

    The function returns the stored form, and raises `InvalidInputError` naming the expected type and the value found.
    """
    return CONVERSIONS[type(dtype)].cast(dtype, manner)


def restriction(dtype: DataType) -> Convert | None:
    """Return a function that raises for a value outside of a restricted type; None for an unrestricted type."""
    inner = strip_optional(dtype)
    return cast(inner) if isinstance(inner, (BetweenType, OneOfType, RegexType)) else None


def casts(value: Any, dtype: DataType) -> bool:
    """Return whether a value can be cast to a type."""
    try:
        cast(dtype)(value)
    except InvalidInputError:
        return False
    return True


def conforms(value: Any, dtype: DataType, *, widen: bool = False) -> bool:
    """Return whether `value` is of `dtype` without conversion: 0.0 is no int, "1" no number, and 1 no float.

    With `widen`, ints are floats as well.
    """
    return CONVERSIONS[type(dtype)].conforms(value, dtype, widen)


@lru_cache(maxsize=4096)
def decode(dtype: DataType) -> Convert:
    """Compile the conversion from the stored form to Python objects, as pandas users expect them.

    A null in a list or map is pd.NA. A null field of a struct is None, so that structs can be compared: `pd.NA == 1` is
    neither true nor false. Structs become instances of their class.
    """
    return CONVERSIONS[type(dtype)].decode(dtype)


@lru_cache(maxsize=4096)
def to_json(dtype: DataType) -> Convert:
    """Compile the conversion from the stored form to JSON values.

    Instants and days are ISO strings, decimals text, bytes base64, structs objects; infinities and NaN are words.
    """
    return CONVERSIONS[type(dtype)].to_json(dtype)


@lru_cache(maxsize=4096)
def from_json(dtype: DataType) -> Convert:
    """Compile the conversion from `to_json` back to the stored form.

    The function raises `InvalidInputError` for a value that isn't of the type.
    """
    read = CONVERSIONS[type(dtype)].from_json
    return cast(dtype) if read is None else read(dtype)


@lru_cache(maxsize=4096)
def verify(dtype: DataType) -> Check:
    """Compile the check that a stored value keeps to its type: nulls only where they may be, restrictions, lengths.

    The check is for computed values; a cast has made these tests already. It raises `InvalidInputError` with the
    position, the expected type and the value found.
    """
    present = dtype.of if isinstance(dtype, OptionalType) else dtype
    inside = CONVERSIONS[type(present)].inside(present)
    if isinstance(dtype, OptionalType):
        return same if inside is None else lambda value: None if value is None else inside(value)

    def check(value: Any) -> None:
        if value is None:
            raise InvalidInputError(f"expected {type_name(dtype)}, found null")
        if inside is not None:
            inside(value)

    return check


def check_stored(value: object, dtype: DataType) -> None:
    """Check that a value from outside is in the stored form of a type and within its restrictions."""
    if not has_form(value, dtype):
        raise mismatch(type_name(dtype), value)
    verify(dtype)(value)


def has_form(value: Any, dtype: DataType) -> bool:
    """Return whether a value is in the stored form of a type, whatever its restrictions are."""
    check = CONVERSIONS[type(dtype)].has_form
    if check is not None:
        return check(value, dtype)
    try:
        found = cast(dtype)(value)
    except InvalidInputError:
        return False
    return type(found) is type(value) and bool(found == value)


def arrow_type(dtype: DataType) -> pa.DataType:
    """Return the Arrow type of a column; restrictions and optionality make no difference."""
    return CONVERSIONS[type(dtype)].arrow(dtype)


def to_arrow(dtype: DataType) -> Convert:
    """Compile the conversion from the stored form to Arrow's input: structs as dicts, maps as pairs."""
    show = CONVERSIONS[type(dtype)].to_arrow
    return decode(dtype) if show is None else show(dtype)
