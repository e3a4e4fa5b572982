"""Files and folders that only their owner may read."""

import os
import secrets
from pathlib import Path

_FOLDER, _FILE = 0o700, 0o600


def opener(path: str, flags: int) -> int:
    """Open a file for `open(..., opener=opener)`, so that a new one is private from its first byte on."""
    return os.open(path, flags, _FILE)


def make_folder(path: Path) -> None:
    """Create a private folder, if it doesn't exist. An existing folder keeps its permissions."""
    path.mkdir(mode=_FOLDER, parents=True, exist_ok=True)


def write_whole(file: Path, content: bytes) -> None:
    """Write a private file under another name first, so that nobody ever reads half of it under its own name."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    # A file that a crash has left may be readable by others, and would keep its rights.
    unfinished.unlink(missing_ok=True)
    with open(unfinished, "wb", opener=opener) as written:
        written.write(content)
    unfinished.replace(file)


def kept_password(file: Path, random_bytes: int) -> str:
    """Return the password in a file, which is created if it doesn't exist."""
    if not file.is_file():
        make_folder(file.parent)
        write_whole(file, secrets.token_hex(random_bytes).encode())
    return file.read_text(encoding="utf-8")
