"""The list of this user's running stacks, by which clients in any folder find them (`caraway.client.discovery`).

Each stack has a file of its own in the list, so that two stacks never write the same file.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from caraway.client.discovery import announced, entry_name, stacks_folder

UNFINISHED = ".unfinished"


def announce(data_dir: Path, url: str) -> None:
    """Write a running stack into the list, and remove the entries of stacks that don't run any more.

    Raises:
        OSError: The list can't be written; the stack works all the same.
    """
    folder = stacks_folder()
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    with _alone(folder):
        _clean(folder)
        entry = folder / entry_name(data_dir)
        unfinished = entry.with_suffix(UNFINISHED)
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump({"url": url, "data_dir": str(data_dir)}, file)
        unfinished.replace(entry)


def withdraw(data_dir: Path) -> None:
    """Remove a stack from the list. An entry that can't be removed does no harm, since its stack doesn't run."""
    folder = stacks_folder()
    if folder is None or not folder.is_dir():
        return
    with contextlib.suppress(OSError), _alone(folder):
        (folder / entry_name(data_dir)).unlink(missing_ok=True)


def _clean(folder: Path) -> None:
    for entry in folder.glob("*.json"):
        if announced(entry) is None:
            entry.unlink(missing_ok=True)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other stacks from changing the list, so that the cleaning by one can't remove the new entry of another."""
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
