"""JSON bodies and query strings as the Structs that endpoints declare, and errors that name the place and the remedy.

The description of a Struct's field is a phrase for what it has to be. It stands in the OpenAPI document, too.
"""

import re
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from caraway.dataplane.ingest.table import json_type
from caraway.errors import InvalidInputError, TooLargeError

# Patterns for msgspec's error messages: the name of a missing member, the place of any other fault, and the greatest
# length of a list or text that is too long.
_MISSING = re.compile(r"Object missing required field `(.+)`")
_PLACE = re.compile(r"`\$\.((\w+)(?:\[(\d+)\])?[^`]*)`$")
_LONGEST = re.compile(r"of length <= (\d+)")

# The most characters of a query parameter's value that an error message quotes.
LONGEST_QUOTED = 40

# A list of any values.
Values = Annotated[list[Any], Meta(extra_json_schema={"items": {}})]
Flag = Annotated[bool | None, Meta(description="true or false")]

S = TypeVar("S", bound=Struct)


class Nothing(Struct):
    """A body or a query string of which nothing is read."""


def prepare(form: type[Struct]) -> None:
    """Have msgspec collect the facts about a Struct.

    It does so at the first decoding, and other threads would use the incomplete facts meanwhile. So each endpoint
    prepares its Structs when its row is made, which is before there are threads.
    """
    msgspec.json.Decoder(form)


def structured(given: object, form: type[S]) -> S:
    """Return the value of a JSON text as a Struct.

    Raises:
        InvalidInputError: A member is missing or has another type, or a value is out of its bounds.
        TooLargeError: A list has too many elements.
    """
    try:
        return msgspec.convert(given, form)
    except msgspec.ValidationError as error:
        if not isinstance(given, dict):
            raise InvalidInputError(f"the body is {json_type(given)}; an object is expected") from None
        raise _refusal(str(error), given, form) from None


def from_query(parameters: dict[str, str], form: type[S]) -> S:
    """Return the parameters of a query string as a Struct.

    Raises `InvalidInputError` if a parameter is missing or isn't what is expected.
    """
    try:
        return msgspec.convert(parameters, form, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"query parameter {_refusal(str(error), parameters, form, quoting=True)}") from None


def _refusal(
    text: str, given: dict[str, Any], form: type[Struct], *, quoting: bool = False
) -> InvalidInputError | TooLargeError:
    if missing := _MISSING.match(text):
        return InvalidInputError(f"{missing[1]} is missing; it has to be {_expected(form)[missing[1]]}")
    found = _PLACE.search(text)
    if found is None:
        return InvalidInputError(text)
    place, name, index = found.groups()
    value = given[name]
    remedy = f"{'it' if place == name else name} has to be {_expected(form)[name]}"
    if place == f"{name}[{index}]":
        value = value[int(index)]
    elif place != name:
        return InvalidInputError(f"{name} holds a value that doesn't fit; {remedy}")
    if longest := _LONGEST.search(text):
        error, parts = (TooLargeError, "elements") if isinstance(value, list) else (InvalidInputError, "characters")
        return error(f"{place} has {len(value):,} {parts}; at most {int(longest[1]):,} are possible")
    if value == []:
        shown = "empty"
    elif quoting:
        shown = repr(value[:LONGEST_QUOTED])
    else:
        # The message shows a number that is out of bounds. For any other value it shows only the type, because a text
        # may be a secret.
        shown = str(value) if isinstance(value, (int, float)) and "got" not in text else json_type(value)
    return InvalidInputError(f"{place} is {shown}; {remedy}")


@lru_cache(maxsize=100)
def _expected(form: type[Struct]) -> dict[str, str]:
    """Return the description of each field."""
    _, components = msgspec.json.schema_components([form])
    return {name: of["description"] for name, of in components[form.__name__]["properties"].items()}
