"""Files and folders that only their owner may read, and how files are made to survive a power failure."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

_FOLDER, _FILE = 0o700, 0o600


def opener(path: str, flags: int) -> int:
    """Open a file for `open(..., opener=opener)`, so that a new one is private from its first byte on."""
    return os.open(path, flags, _FILE)


def make_folder(path: Path) -> None:
    """Create a private folder, if it doesn't exist. An existing folder keeps its permissions."""
    path.mkdir(mode=_FOLDER, parents=True, exist_ok=True)


def sync(path: Path | str) -> None:
    """Return when a file is on the disk; of a folder, the names in it. Raises `OSError` if the disk refuses."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_names(path: Path) -> None:
    """Return when a file's name is on the disk, and that of its folder, which may be new as well."""
    for folder in path.parents[:2]:
        # Syncing a folder takes the right to read it. In a folder of somebody else, without that right, the name of a
        # new file may be lost in a power failure.
        with suppress(PermissionError):
            sync(folder)


def make_lasting_folder(path: Path) -> None:
    """Create a folder, if it doesn't exist, whose name survives a power failure from now on."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in new:
        sync(folder.parent)


def write_whole(file: Path, content: bytes, *, lasting: bool = False) -> None:
    """Write a private file under another name first, so that nobody ever reads half of it under its own name.

    A `lasting` file survives a power failure from now on; others, which the next start writes anew, may not.
    """
    unfinished = file.with_name(f"{file.name}.unfinished")
    # Others may be able to read an unfinished file that a crash has left. Opening that file again would keep its
    # permissions.
    unfinished.unlink(missing_ok=True)
    with open(unfinished, "wb", opener=opener) as written:
        written.write(content)
        written.flush()
        if lasting:
            os.fsync(written.fileno())
    unfinished.replace(file)
    if lasting:
        sync_names(file)


def kept_password(file: Path, random_bytes: int) -> str:
    """Return the password in a file, which is created if it doesn't exist."""
    if not file.is_file():
        make_folder(file.parent)
        write_whole(file, secrets.token_hex(random_bytes).encode(), lasting=True)
    return file.read_text(encoding="utf-8")
