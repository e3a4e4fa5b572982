"""Which names and values a secret may have: checked by the server, and by the commands before they send one."""

import re

from caraway.errors import InvalidInputError

NAME = re.compile(r"[A-Za-z0-9_.\-]{1,200}")
# The longest value in characters. Certificates with their chains have some 10,000; more than this is a file.
MAX_VALUE = 65_536


def checked_name(name: str) -> str:
    """Return a name that a secret may have.

    Raises:
        InvalidInputError: It isn't possible.
    """
    if not NAME.fullmatch(name):
        raise InvalidInputError("the name of a secret has 1 to 200 letters, digits, _ . and -")
    return name


def checked_value(value: object) -> str:
    """Return a value that a secret may have. No message contains the value.

    Raises:
        InvalidInputError: It isn't possible.
    """
    if not isinstance(value, str):
        raise InvalidInputError(f"value is {type(value).__name__}; a string is expected")
    if not value or len(value) > MAX_VALUE:
        raise InvalidInputError(f"value has {len(value):,} characters; 1 to {MAX_VALUE:,} are possible")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError("value isn't text: it has half of a surrogate pair") from None
    return value
