"""The token of the embedded stack: made at its first start, and found by this user's clients."""

import os
import secrets
from pathlib import Path

# The form of the tokens that `caraway tokens create` makes, so that programs which look for secrets in code find it.
PREFIX = "caraway_stack_"
SECRET_BYTES = 32


def ensure_token(file: Path) -> None:
    """Make a token if there is none, and let only this user read it.

    Raises:
        OSError: The file can't be read or written.
    """
    if file.exists():
        file.chmod(0o600)
        if file.read_bytes().strip():
            return
    unfinished = file.with_name(f"{file.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(f"{PREFIX}{secrets.token_urlsafe(SECRET_BYTES)}\n")
    unfinished.replace(file)
