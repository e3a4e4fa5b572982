"""Casts of single values to a type, which happen once, where data comes in.

`cast(dtype)` compiles a function from anything to the stored form (docs/records.md): instants as int microseconds, days
as int, decimals as text, structs as lists of their fields. It is lenient where no information is lost: `"12"` and
`12.0` are ints.
"""

import base64
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation, localcontext
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from caraway.dtypes.annotations import STRUCT_ATTRIBUTE
from caraway.dtypes.instants import day_number, instant_us
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
from caraway.errors import InvalidInputError, quoted, shortened

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
DECIMAL_DIGITS = 28

# The word for the float NaN in JSON, in answers and in requests.
NAN_WORD = "NaN"

Cast = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Manner:
    """The leniency of a cast.

    Attributes:
        strict_text: Numbers and truth values aren't taken for text. A key that is 1.50 in one system and 1.5 in another
            would be two keys as text, and nobody would notice.
        takes_nan: The word `NaN` is a float, so that what an answer holds can be given again.
    """

    strict_text: bool = False
    takes_nan: bool = False


# The manner for the local client and for Python's own values.
LENIENT = Manner()
# The manner for rows that are logged over HTTP.
ROWS = Manner(strict_text=True)
# The manner for inputs of queries and keys of lookups over HTTP.
INPUTS = Manner(strict_text=True, takes_nan=True)

_NUMERIC = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*|\s*[+-]?inf(inity)?\s*", re.IGNORECASE | re.ASCII)
_TRUTH = {"true": True, "false": False}


def is_null(value: Any) -> bool:
    """Return whether a value stands for null: None, pd.NA, NaT or NaN."""
    if value is None or value is pd.NA or value is pd.NaT:
        return True
    if isinstance(value, (float, np.floating)):
        return bool(value != value)  # noqa: PLR0124 (NaN only)
    return isinstance(value, np.datetime64) and bool(np.isnat(value))


@lru_cache(maxsize=4096)
def cast(dtype: DataType, manner: Manner = LENIENT) -> Cast:  # noqa: C901, PLR0911 (a branch a member)
    """Compile the cast to a type; the manner holds for its inner types too.

    The function returns the stored form, and raises `InvalidInputError` naming the expected type and the value found.
    """
    match dtype:
        case OptionalType(of):
            inner = cast(of, manner)
            return lambda value: None if is_null(value) else inner(value)
        case IntType():
            return _int
        case FloatType():
            return _float_or_nan if manner.takes_nan else _float
        case BoolType():
            return _bool
        case StringType():
            return _text if manner.strict_text else _str
        case BytesType():
            return _bytes
        case DatetimeType():
            return _datetime
        case DateType():
            return _date
        case DecimalType():
            return _decimal(dtype)
        case EmbeddingType(dim):
            return _embedding(dim, cast(FloatType(), manner))
        case ListType(of):
            return _list(dtype, cast(of, manner))
        case MapType(of):
            return _map(dtype, cast(of, manner))
        case StructType():
            return _struct(dtype, manner)
        case BetweenType():
            return _between(dtype, manner)
        case OneOfType():
            return _oneof(dtype, manner)
        case RegexType():
            return _regex(dtype, cast(StringType(), manner))


def mismatch(expected: str, value: Any) -> InvalidInputError:
    """Return the error for a value that isn't of the expected type."""
    if is_null(value):
        return InvalidInputError(f"expected {expected}, found null")
    return InvalidInputError(f"expected {expected}, found {type(value).__name__} {quoted(value)[:100]}")


def _int(value: Any) -> int:
    if type(value) is not int:
        value = _to_int(value)
    if INT_MIN <= value <= INT_MAX:
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
            raise mismatch("int", value) from None
        # Longer numbers are beyond 64 bits, and an exponent of a million would make a number of as many digits.
        if number.is_finite() and number.adjusted() < 20 and number == number.to_integral_value():
            return int(number)
    raise mismatch("int", value)


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
        raise mismatch("float", value)
    return number


def _float_or_nan(value: Any) -> float:
    # Answers in JSON spell NaN in this way.
    return math.nan if value == NAN_WORD else _float(value)


def _bool(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, str) and value.lower() in _TRUTH:
        return _TRUTH[value.lower()]
    if isinstance(value, (int, np.integer, float, np.floating)) and not is_null(value):
        return bool(value)
    raise mismatch("bool", value)


def _str(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer, Decimal)):
        return str(value)
    if isinstance(value, (float, np.floating)) and not is_null(value):
        return repr(float(value))
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise mismatch("str", value) from None
    raise mismatch("str", value)


def _text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_, int, np.integer, float, np.floating, Decimal)):
        raise mismatch("str", value)
    return _str(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Mapping) and value.keys() == {"base64"}:
        # JSON holds bytes in base64.
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (ValueError, TypeError):
            raise mismatch("bytes", value) from None
    raise mismatch("bytes", value)


def _datetime(value: Any) -> int:
    if is_null(value):
        raise mismatch("datetime", value)
    return instant_us(value)


def _date(value: Any) -> int:
    if is_null(value):
        raise mismatch("date", value)
    return day_number(value)


def _decimal(dtype: DecimalType) -> Cast:
    expected, step = type_name(dtype), Decimal(1).scaleb(-dtype.scale)

    def to_decimal(value: Any) -> str:
        is_float = isinstance(value, (float, np.floating)) and not is_null(value)
        if not is_float and (
            isinstance(value, (bool, np.bool_)) or not isinstance(value, (Decimal, int, np.integer, str))
        ):
            raise mismatch(expected, value)
        try:
            with localcontext(prec=DECIMAL_DIGITS):
                number = Decimal(float(value) if is_float else int(value) if isinstance(value, np.integer) else value)
                rounded = number.quantize(step)
        except InvalidOperation:
            raise mismatch(f"{expected} of at most {DECIMAL_DIGITS} digits", value) from None
        if not rounded.is_finite() or (not is_float and rounded != number):
            raise mismatch(expected, value)
        return format(abs(rounded) if rounded == 0 else rounded, "f")

    return to_decimal


def _sequence(expected: str, value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return list(value)
    if isinstance(value, (list, tuple)):
        return list(value)
    raise mismatch(expected, value)


def _list(dtype: ListType, element: Cast) -> Cast:
    expected = type_name(dtype)

    def to_list(value: Any) -> list[Any]:
        result = []
        for position, item in enumerate(_sequence(expected, value)):
            try:
                result.append(element(item))
            except InvalidInputError as error:
                raise InvalidInputError(f"{expected}, element {position}: {error}") from None
        return result

    return to_list


def _embedding(dim: int, element: Cast) -> Cast:
    expected = f"Embedding[{dim}]"

    def to_embedding(value: Any) -> list[float]:
        items = _sequence(expected, value)
        if len(items) != dim:
            raise InvalidInputError(f"expected {expected}, found {len(items)} elements")
        return [element(item) for item in items]

    return to_embedding


def _map(dtype: MapType, element: Cast) -> Cast:
    expected = type_name(dtype)

    def to_map(value: Any) -> dict[str, Any]:
        try:
            items = dict(value) if isinstance(value, Mapping) else dict(_sequence(expected, value))
        except (TypeError, ValueError):
            raise mismatch(expected, value) from None
        if wrong := [key for key in items if not isinstance(key, str)]:
            raise InvalidInputError(f"expected {expected}, found key {quoted(wrong[0])}")
        result = {}
        for key in sorted(items):
            try:
                result[key] = element(items[key])
            except InvalidInputError as error:
                raise InvalidInputError(f'{expected}, key "{shortened(key)}": {error}') from None
        return result

    return to_map


def _struct(dtype: StructType, manner: Manner) -> Cast:
    casts = [(name, cast(field, manner)) for name, field in dtype.fields]

    def to_struct(value: Any) -> list[Any]:
        if isinstance(value, Mapping):
            get = value.get
        elif hasattr(type(value), STRUCT_ATTRIBUTE):
            get = vars(value).get
        else:
            raise mismatch(f"struct {dtype.name}", value)
        result = []
        for name, field in casts:
            try:
                result.append(field(get(name)))
            except InvalidInputError as error:
                raise InvalidInputError(f"struct {dtype.name}, field {name}: {error}") from None
        return result

    return to_struct


def _between(dtype: BetweenType, manner: Manner) -> Cast:
    inner, expected = cast(dtype.of, manner), type_name(dtype)

    def to_between(value: Any) -> Any:
        number = inner(value)
        above = number > dtype.minimum if dtype.strict_min else number >= dtype.minimum
        below = number < dtype.maximum if dtype.strict_max else number <= dtype.maximum
        if above and below:
            return number
        raise mismatch(expected, value)

    return to_between


def _oneof(dtype: OneOfType, manner: Manner) -> Cast:
    inner, expected, options = cast(dtype.of, manner), type_name(dtype), frozenset(dtype.options)

    def to_option(value: Any) -> Any:
        option = inner(value)
        if option in options:
            return option
        raise mismatch(expected, value)

    return to_option


def _regex(dtype: RegexType, as_text: Cast) -> Cast:
    expected, pattern = type_name(dtype), re.compile(dtype.pattern)

    def to_matching(value: Any) -> str:
        text: str = as_text(value)
        if pattern.fullmatch(text):
            return text
        raise mismatch(expected, value)

    return to_matching
