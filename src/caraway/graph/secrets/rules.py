"""The rules for names and values of secrets, which the server checks, and the commands before they send a secret."""

import re

from caraway.errors import InvalidInputError

NAME = re.compile(r"[A-Za-z0-9_.\-]{1,200}")
# A secret's value may have at most this many characters. Certificates with their chains have some 10,000, so a longer
# text is hardly a secret.
MAX_VALUE = 65_536


def checked_name(name: str) -> str:
    """Return a name, if a secret may have it.

    Raises:
        InvalidInputError: No secret may have this name.
    """
    if not NAME.fullmatch(name):
        raise InvalidInputError("the name of a secret has 1 to 200 letters, digits, _ . and -")
    return name


def checked_value(value: object) -> str:
    """Return a value, if a secret may have it. No message contains the value.

    Raises:
        InvalidInputError: No secret may have this value.
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
