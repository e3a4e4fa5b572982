"""The list of this user's running stacks, by which clients in any folder find them (`caraway.client.discovery`).

Each stack has a file of its own in the list, so that two stacks never write the same file.
"""

import contextlib
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path

from caraway.client.discovery import announced, entry_name, stacks_folder
from caraway.process.private_files import write_whole


def announce(data_dir: Path, url: str) -> None:
    """Write a running stack into the list, and remove the entries of stacks that don't run any more.

    Raises `OSError` if the list can't be written; the stack works all the same.
    """
    folder = stacks_folder()
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    with _alone(folder):
        for entry in folder.glob("*.json"):
            if announced(entry) is None:
                entry.unlink(missing_ok=True)
        write_whole(folder / entry_name(data_dir), json.dumps({"url": url, "data_dir": str(data_dir)}).encode())


def withdraw(data_dir: Path) -> None:
    """Remove a stack from the list. An entry that can't be removed does no harm, since its stack doesn't run."""
    folder = stacks_folder()
    if folder is None or not folder.is_dir():
        return
    with contextlib.suppress(OSError), _alone(folder):
        (folder / entry_name(data_dir)).unlink(missing_ok=True)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other stacks from changing the list meanwhile, so that none removes an entry that another one writes."""
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
