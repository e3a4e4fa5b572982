"""Files and folders that only their owner may read: the data folder holds all data of a deployment, and its keys."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

# The files and folders of a stack in its data folder (docs/operations.md); readers have an index folder each.
CONTENT = (
    "caraway.toml",
    "checkpoints",
    "engine",
    "index*",
    "kafka",
    "logs",
    "objects",
    "postgres",
    "run",
    "secret.key",
    "server",
    "spark",
)
_OTHERS = 0o077
_FOLDER, _FILE = 0o700, 0o600


def opener(path: str, flags: int) -> int:
    """Open a file for `open(..., opener=opener)`, so that a new one is private from its first byte on."""
    return os.open(path, flags, _FILE)


def make_folder(path: Path) -> None:
    """Create a private folder, if it doesn't exist. An existing folder keeps its rights: it may be anybody's."""
    path.mkdir(mode=_FOLDER, parents=True, exist_ok=True)


def kept_password(file: Path, random_bytes: int) -> str:
    """Return the password in a file, which is created if it doesn't exist."""
    if not file.is_file():
        make_folder(file.parent)
        # The password is written under another name first, so that the file, once it exists, holds a whole password.
        unfinished = file.with_name(f"{file.name}.unfinished")
        with open(unfinished, "w", encoding="utf-8", opener=opener) as written:
            written.write(secrets.token_hex(random_bytes))
        unfinished.replace(file)
    return file.read_text(encoding="utf-8")


def make_private(folder: Path) -> int:
    """Remove other users' rights to a data folder and the stack's files in it; return how many files had such rights.

    This repairs the data folder of a version that left files readable. Other files in the folder stay as they are,
    since the user may have chosen a folder with files of their own.
    """
    ours = [path for name in CONTENT for path in folder.glob(name)]
    # The root of the file system must stay open to all users.
    top = 0 if folder == folder.parent else _closed(folder)
    return top + sum(_closed(path) + sum(map(_closed, path.rglob("*"))) for path in ours)


def _closed(path: Path) -> int:
    # A file may be gone by now.
    with suppress(OSError):
        mode = path.lstat().st_mode & 0o7777
        if mode & _OTHERS and not path.is_symlink():
            path.chmod(mode & ~_OTHERS)
            return 1
    return 0
