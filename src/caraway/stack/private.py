"""The privacy of a data folder, which holds all data of a deployment and its keys: only its owner may read it."""

from contextlib import suppress
from pathlib import Path

# The files and folders of a stack in its data folder (docs/operations.md). Each reader process of the server has an
# index folder of its own.
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
    # A file may have vanished since its folder was listed.
    with suppress(OSError):
        mode = path.lstat().st_mode & 0o7777
        if mode & _OTHERS and not path.is_symlink():
            path.chmod(mode & ~_OTHERS)
            return 1
    return 0
