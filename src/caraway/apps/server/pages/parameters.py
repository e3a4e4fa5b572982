"""The parameters of a page's address."""

from typing import Any

from caraway.apps.server.http.messages import Request
from caraway.apps.server.pages.session import fields_in
from caraway.errors import InvalidInputError

# The most characters of a parameter. The longest ones are a list of names of features, or the words of a search.
LONGEST = 5_000


def given(request: Request[Any, Any], name: str) -> str:
    """Return a parameter, the last one of several with this name; empty if there is none.

    Raises `InvalidInputError` if it is too long.
    """
    found = fields_in(request.query_string).get(name, [""])[-1]
    if len(found) > LONGEST:
        raise InvalidInputError(f"the parameter {name} has more than {LONGEST:,} characters")
    return found


def whole(request: Request[Any, Any], name: str, default: int, greatest: int) -> int:
    """Return a parameter that is a number from 1 on. Raises `InvalidInputError` if it isn't one."""
    text = given(request, name)
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= greatest:
        raise InvalidInputError(f"the parameter {name} is {text[:40]!r}; a number from 1 to {greatest:,} is expected")
    return int(text)
