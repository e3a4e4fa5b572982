"""The rule for names of branches, for the client, the command line and the server."""

import re

from caraway.errors import InvalidInputError, quoted

MAX_CHARACTERS = 200
# Slashes separate the parts of a branch's name, and each part begins with a letter, digit or _. So no part is `.` or
# `..` or looks like an option of a command, and a path or URL that ends with the name stays below the folder or address
# that it is appended to.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*(/[A-Za-z0-9_][A-Za-z0-9_.\-]*)*")


def check_branch_name(name: object) -> str:
    """Return the name of a new branch, if a branch may have it.

    Raises:
        InvalidInputError: No branch may have this name.
    """
    if not isinstance(name, str) or len(name) > MAX_CHARACTERS or not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{quoted(name)} can't name a branch: letters, digits, _ . - and / are possible, at most "
            f"{MAX_CHARACTERS} of them, and each part between slashes begins with a letter, a digit or _"
        )
    return name
