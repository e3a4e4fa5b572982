"""The token of the embedded stack: created at its first start, and found by this user's clients."""

import os
import secrets
from pathlib import Path

# Like the prefix of the tokens of `caraway tokens create`, it lets programs find tokens in code that must have none.
PREFIX = "caraway_stack_"
SECRET_BYTES = 32


def ensure_token(file: Path) -> None:
    """Create a token if there is none, readable by this user only.

    Raises `OSError` if the file can't be read or written.
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
