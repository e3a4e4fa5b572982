"""Files and folders that only their owner may read: the data folder holds all data of a deployment, and its keys."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

_OTHERS = 0o077
_FOLDER, _FILE = 0o700, 0o600


def opener(path: str, flags: int) -> int:
    """Open a file for `open(..., opener=opener)`, so that a new one is private from its first byte on."""
    return os.open(path, flags, _FILE)


def make_folder(path: Path) -> None:
    """Make a folder, if there is none, and make it private."""
    path.mkdir(mode=_FOLDER, parents=True, exist_ok=True)
    if path.stat().st_mode & _OTHERS:
        path.chmod(_FOLDER)


def kept_password(file: Path, random_bytes: int) -> str:
    """Return the password in a file, which is made if it isn't there."""
    if not file.is_file():
        make_folder(file.parent)
        # Under another name first: a file that is there holds all of a password.
        unfinished = file.with_name(f"{file.name}.unfinished")
        with open(unfinished, "w", encoding="utf-8", opener=opener) as written:
            written.write(secrets.token_hex(random_bytes))
        unfinished.replace(file)
    return file.read_text(encoding="utf-8")


def make_private(folder: Path) -> int:
    """Take the rights of others to a folder and all in it; return how many files and folders had some.

    A data folder of a version that left files readable is mended by it. Files of other users stay as they are.
    """
    mended = 0
    for place, _, names in os.walk(folder):
        for path in (Path(place), *(Path(place) / name for name in names)):
            # What ends meanwhile has no mode any more.
            with suppress(OSError):
                mode = path.lstat().st_mode & 0o7777
                if mode & _OTHERS and not path.is_symlink():
                    path.chmod(mode & ~_OTHERS)
                    mended += 1
    return mended
