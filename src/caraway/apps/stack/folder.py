"""The data folder of a stack: its files, the check that it can be used, and the lock by which only one stack uses it.

It holds all data of a deployment and its keys, so only its owner may read it.
"""

import errno
import fcntl
import os
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from caraway.apps.stack.errors import AlreadyRunningError, DataFolderError
from caraway.client.discovery import LOCK, RECORD, TOKEN, is_running
from caraway.process.private_files import make_folder, opener, write_whole

# A stack isn't started if fewer bytes are free. The first files of Postgres and Kafka alone take some 60 MB.
LEAST_FREE_BYTES = 256 * 1024 * 1024
# Seconds for which `claim` tries to take the lock, and the pause between two attempts. A client that looks whether a
# stack runs holds the lock for some microseconds, and longer on a busy machine.
LOCK_SECONDS, LOCK_PAUSE_SECONDS = 10.0, 0.005
# Programs that search code for secrets find the token of a stack by this prefix.
TOKEN_PREFIX = "caraway_stack_"  # noqa: S105 (the prefix isn't secret)
TOKEN_BYTES = 32
# The files and folders of a stack in its data folder, as patterns (docs/operate/operations.md). `index*` has a star,
# since each reader process of the server has an index folder of its own.
CONTENT = (
    "archive",
    "caraway.toml",
    "checkpoints",
    "engine",
    "index*",
    "kafka",
    "logs",
    "objects",
    "offline",
    "postgres",
    "run",
    "secret.key",
    "server",
    "spark",
)
RIGHTS_OF_OTHERS = 0o077


class DataFolder:
    """A data folder on this machine.

    Attributes:
        path: The folder itself.
        run: The folder of the files of a running stack: its record, its token, the engine's heartbeat.
        logs: One log a part.
        record: The stack's record, `stack.json`.
        heartbeat: The file that the engine writes every second.
        token: The token by which the server accepts this user's clients.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = path / "run"
        self.logs = path / "logs"
        self.record = path / RECORD
        self.token = path / TOKEN
        self.heartbeat = self.run / "engine.json"
        self._lock: IO[str] | None = None

    def log(self, part: str) -> Path:
        """Return the log file of a part."""
        return self.logs / f"{part}.log"

    def claim(self) -> None:
        """Create the folder if it doesn't exist, and lock it against other stacks.

        Raises:
            AlreadyRunningError: Another stack uses the folder.
            DataFolderError: The folder is of another user, can't be written, or its disk is full.
        """
        try:
            for folder in (self.path, self.run, self.logs):
                make_folder(folder)
                _check_owner(folder)
            self._check_writable()
        except OSError as error:
            raise DataFolderError(_explain(self.path, error)) from error
        lock = open(self.path / LOCK, "a+", opener=opener)  # noqa: SIM115 (held open; a Path takes no opener)
        if not _locked(lock):
            lock.seek(0)
            process = lock.read().strip() or "unknown"
            lock.close()
            raise AlreadyRunningError(
                f"Caraway runs already in {self.path} (process {process}).\n"
                "See `caraway status`, end it with `caraway down`, or choose another folder with --data."
            )
        make_private(self.path)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def release(self) -> None:
        """Release the lock, so that another stack can use the folder."""
        if self._lock:
            self._lock.close()
            self._lock = None

    def is_claimed(self) -> bool:
        """Return whether a stack of any process uses the folder."""
        return is_running(self.path)

    def ensure_token(self) -> None:
        """Create the token of the stack, readable by this user only, unless there is one.

        Raises `OSError` if the file can't be read or written.
        """
        if self.token.exists():
            self.token.chmod(0o600)
            if self.token.read_bytes().strip():
                return
        write_whole(self.token, f"{TOKEN_PREFIX}{secrets.token_urlsafe(TOKEN_BYTES)}\n".encode(), lasting=True)

    def _check_writable(self) -> None:
        probe = self.run / "probe"
        # A file is written, since permissions alone don't suffice: the disk may be read-only, or the quota used up.
        probe.write_bytes(bytes(4096))
        probe.unlink()
        free = shutil.disk_usage(self.path).free
        if free < LEAST_FREE_BYTES:
            raise OSError(errno.ENOSPC, f"{free // 2**20} MiB are free, {LEAST_FREE_BYTES // 2**20} MiB are needed")


def _check_owner(folder: Path) -> None:
    owner = folder.stat().st_uid
    if owner not in {os.geteuid(), 0}:
        raise DataFolderError(
            f"{folder} belongs to another user (number {owner}), whose settings and keys would be used.\n"
            f"Choose a folder that belongs to you with --data, or make this one yours: chown -R {os.geteuid()} {folder}"
        )


def make_private(folder: Path) -> int:
    """Remove other users' rights to a data folder and the stack's files in it; return how many files had such rights.

    This repairs the data folder of a version that left files readable. Other files in the folder stay as they are,
    since the user may have chosen a folder with files of their own.
    """
    ours = [path for name in CONTENT for path in folder.glob(name)]
    # If the data folder is the root of the file system, other users keep their rights to the root itself, since all
    # users of the machine need it.
    top = 0 if folder == folder.parent else _closed(folder)
    return top + sum(_closed(path) + sum(map(_closed, path.rglob("*"))) for path in ours)


def _closed(path: Path) -> int:
    # A file may have vanished since its folder was listed.
    with suppress(OSError):
        mode = path.lstat().st_mode & 0o7777
        if mode & RIGHTS_OF_OTHERS and not path.is_symlink():
            path.chmod(mode & ~RIGHTS_OF_OTHERS)
            return 1
    return 0


def _locked(lock: IO[str]) -> bool:
    """Take the lock, and return whether that succeeded. The system releases it however this process ends."""
    deadline = time.monotonic() + LOCK_SECONDS
    while not _flocked(lock, fcntl.LOCK_EX):
        # A stack locks the folder exclusively. A process that only looks for a stack shares the lock for a moment.
        if not _flocked(lock, fcntl.LOCK_SH):
            return False
        fcntl.flock(lock, fcntl.LOCK_UN)
        if time.monotonic() > deadline:
            return False
        time.sleep(LOCK_PAUSE_SECONDS)
    return True


def _flocked(lock: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _explain(path: Path, error: OSError) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return (
                f"The disk of the data folder {path} is full: {error.strerror}.\n"
                "Free some space, or choose a folder on another disk with --data."
            )
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return (
                f"The data folder {path} can't be written: {error.strerror}.\n"
                "Choose a folder that belongs to you with --data, or set CARAWAY_DATA_DIR."
            )
        case errno.ENOTDIR | errno.EEXIST:
            return f"The data folder {path} can't be made: a file is in the way.\nChoose another folder with --data."
        case _:
            return f"The data folder {path} can't be used: {error}.\nChoose another folder with --data."
