"""Parsing of JSON documents to typed values (`str.parse`) in stored form.

The rules are stricter than those of ingestion: an int is a number without fraction (`1.0` and `1e3` are ints), a bool
is `true` or `false`. A datetime is RFC 3339 text with an offset or a number of microseconds since the epoch, a date is
ISO text or a number of days, a str may be a number (spelled as JSON), a Decimal a number or text. Structs and dicts are
objects, lists and embeddings arrays; a missing member is null, and a member that isn't a field is ignored.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from caraway.dtypes import types as t
from caraway.dtypes.containers import at
from caraway.dtypes.instants import day_number, instant_us
from caraway.dtypes.values import INT_MAX, INT_MIN, Convert, cast
from caraway.errors import InvalidInputError
from caraway.expr.functions.json_text import json_text, load_json

_RFC_3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


@lru_cache(maxsize=1024)
def parse_as(dtype: t.DataType) -> Callable[[str], Any]:
    """Return the function from a document to a stored value of a type.

    The function raises `InvalidInputError`, with the beginning of the document, if that is no JSON or not of the type.
    """
    convert = _converter(dtype)

    def parse(text: str) -> Any:
        try:
            return convert(load_json(text))
        except ValueError as error:
            shown = text if len(text) <= 100 else f"{text[:100]}…"
            raise InvalidInputError(f"str.parse(): {shown!r} holds no {t.type_name(dtype)}: {error}") from None

    return parse


def _converter(dtype: t.DataType) -> Convert:
    match dtype:
        case t.OptionalType(of):
            inner = _converter(of)
            return lambda value: None if value is None else inner(value)
        case t.IntType():
            return _int
        case t.FloatType():
            return lambda value: float(_number(value, "float"))
        case t.BoolType():
            return _bool
        case t.StringType():
            return _text
        case t.DatetimeType():
            return _datetime
        case t.DateType():
            return _date
        case t.DecimalType():
            return _decimal(dtype)
        case t.EmbeddingType(dim):
            return _embedding(dim)
        case t.ListType(of):
            return _list(_converter(of))
        case t.MapType(of):
            return _map(_converter(of))
        case t.StructType():
            return _struct(dtype)
        case t.BetweenType(of) | t.OneOfType(of):
            return _restricted(dtype, _converter(of))
        case t.BytesType():
            raise InvalidInputError("JSON has no bytes")
        case _:
            return _restricted(dtype, _text)


def _mismatch(expected: str, value: Any) -> InvalidInputError:
    return InvalidInputError(f"expected {expected}, found {json_text(value)[:100]}")


def _number(value: Any, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _mismatch(expected, value)
    return value


def _int(value: Any) -> int:
    number = _number(value, "int")
    if number % 1:
        raise _mismatch("int", value)
    whole = int(number)
    if not INT_MIN <= whole <= INT_MAX:
        raise _mismatch("int of 64 bits", value)
    return whole


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _mismatch("true or false", value)
    return value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    _number(value, "a text in quotes")
    return json_text(value)


def _datetime(value: Any) -> int:
    if not isinstance(value, str):
        return _int(value)
    found = _RFC_3339.fullmatch(value)
    if found is None:
        raise _mismatch("an RFC 3339 datetime with an offset", value)
    day, time, fraction, offset = found.groups()
    # Digits beyond microseconds are dropped.
    return instant_us(f"{day}T{time}.{(fraction or '0')[:6]}{offset.upper()}")


def _date(value: Any) -> int:
    if not isinstance(value, str):
        return _int(value)
    if re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII) is None:
        raise _mismatch("an ISO date", value)
    return day_number(value)


def _decimal(dtype: t.DecimalType) -> Convert:
    stored = cast(dtype)

    def to_decimal(value: Any) -> Any:
        # A float is converted by its shortest digits (`repr`), so that 0.1 is exactly a tenth, not a binary fraction.
        return stored(value if isinstance(value, str) else repr(_number(value, t.type_name(dtype))))

    return to_decimal


def _array(value: Any, expected: str) -> list[Any]:
    if not isinstance(value, list):
        raise _mismatch(expected, value)
    return value


def _embedding(dim: int) -> Convert:
    def to_embedding(value: Any) -> list[float]:
        items = _array(value, f"an array of {dim} numbers")
        if len(items) != dim:
            raise _mismatch(f"an array of {dim} numbers", value)
        return [float(_number(item, "float")) for item in items]

    return to_embedding


def _list(element: Convert) -> Convert:
    return lambda value: [
        at(f"element {position}", element, item) for position, item in enumerate(_array(value, "an array"))
    ]


def _members(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _mismatch("an object", value)
    return value


def _map(element: Convert) -> Convert:
    return lambda value: {key: at(f'key "{key}"', element, item) for key, item in sorted(_members(value).items())}


def _struct(dtype: t.StructType) -> Convert:
    fields = [(name, _converter(of)) for name, of in dtype.fields]

    def to_struct(value: Any) -> list[Any]:
        members = _members(value)
        return [at(f"field {name}", convert, members.get(name)) for name, convert in fields]

    return to_struct


def _restricted(dtype: t.DataType, base: Convert) -> Convert:
    check = cast(dtype)
    return lambda value: check(base(value))
