"""The one rule about names of branches, for the client, the command line and the server."""

import re

from caraway.errors import InvalidInputError, quoted

MAX_CHARACTERS = 200
# Parts between slashes begin with a letter, digit or _: so none is `.` or `..` or an option of a command, and a name
# stays below the folder or address that it is put behind.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*(/[A-Za-z0-9_][A-Za-z0-9_.\-]*)*")


def check_branch_name(name: object) -> str:
    """Return the name of a new branch if it is possible.

    Raises:
        InvalidInputError: It isn't.
    """
    if not isinstance(name, str) or len(name) > MAX_CHARACTERS or not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{quoted(name)} can't name a branch: letters, digits, _ . - and / are possible, at most "
            f"{MAX_CHARACTERS} of them, and each part between slashes begins with a letter, a digit or _"
        )
    return name
