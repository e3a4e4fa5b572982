"""Folders for temporary files, which are removed also if their process is killed.

The process that makes such a folder holds a lock on it (flock), which the kernel releases when the process ends,
however it ends. So a folder whose lock is free has no owner any more, and whoever looks may remove it. This also holds
for processes in several containers, which can't see each other's process numbers.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

# The beginning of the names of all these folders. Folders of other names are never removed.
PREFIX = "caraway-scratch-"


class ScratchFolder:
    """A folder of this process."""

    def __init__(self, kind: str, base: Path | None = None) -> None:
        """Make a folder that only this user can enter.

        Args:
            kind: A word for its purpose, as a part of its name.
            base: The folder in which it is made; None for the system's folder of temporary files.
        """
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-", dir=base))
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            # Another process that swept before this one held the lock may have removed the folder. Then another one is
            # made.
            if self.path.exists():
                return
            os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the folder and all that it has."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.release()

    def release(self) -> None:
        """Release the lock, so that others may remove the folder."""
        os.close(self._lock)


def sweep(base: Path | None = None) -> list[Path]:
    """Remove the folders of this user whose processes have ended, and return them.

    Args:
        base: The folder in which they were made; None for the system's folder of temporary files.
    """
    removed = []
    for path in sorted(Path(tempfile.gettempdir() if base is None else base).glob(f"{PREFIX}*")):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                found = os.fstat(descriptor)
                if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
                    continue
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path)
            finally:
                os.close(descriptor)
    return removed
