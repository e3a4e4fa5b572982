"""Fencing: an engine that goes on after a pause, in which another engine has replaced it, can do no harm.

Its records do no harm, since records are upserts by identity and revision. Its writes to a checkpoint that both engines
use would do harm. So the folder of a job's checkpoint belongs to a fencing token. If the previous owner may still run,
a new owner has a new token, and begins with a copy of the previous owner's folder.
"""

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from caraway.dataplane.streams.engine.damage import DAMAGED
from caraway.errors import UnavailableError
from caraway.process.recurring import Recurring
from caraway.state.ownership.leases import HeldLease, Lease

log = logging.getLogger(__name__)

# How long a lease lasts without a renewal; four renewals in a row may fail. The jobs of a killed engine must run in
# another engine within 15 s, and their start takes about 3 s of that. An engine that is itself started again doesn't
# wait until its old lease expires.
LASTING = timedelta(seconds=6)
RENEW_SECONDS = 1.0
POLL_SECONDS = 0.25

# Spark's folder for the metadata of a stateful operator.
_METADATA = "_metadata"
_TOKEN = "token-"  # noqa: S105 (no secret)
_NEW = ".new"
# The suffixes that may follow the id of a job in the name of a checkpoint's folder: none, that of an unfinished copy,
# and that of a damaged checkpoint which was put aside.
_SUFFIXES = ("", _NEW, DAMAGED)


class Fence:
    """The lease of one engine: claimed once, renewed in a thread, and then held or lost for good."""

    def __init__(self, lease: Lease, on_loss: Callable[[], None]) -> None:
        """Call `on_loss` once another process has claimed `lease`."""
        self._held = HeldLease(lease, LASTING)
        self._on_loss = on_loss
        self._recurring = Recurring("lease", self._renew, RENEW_SECONDS)

    def claim(self, stopping: threading.Event, *, alone: bool) -> int | None:
        """Wait for the lease, and renew it from then on; return its token, or None if `stopping` is set first.

        Args:
            stopping: Ends the waiting.
            alone: True if no other engine is in this data folder. If another engine is, it may be suspended for good,
                so its lease is waited for until it expires.

        Raises `UnavailableError` if another engine runs in this data folder.
        """
        deadline = time.monotonic() + 2 * LASTING.total_seconds()
        waits = False
        while not stopping.is_set():
            with suppress(UnavailableError):
                if self._held.keep(succeeds=alone):
                    log.info("this engine has token %d", self._held.token)
                    self._recurring.start()
                    return self._held.token
                if not waits:
                    log.warning("another engine runs in this data folder; waiting until it ends")
                    waits = True
            if not alone and time.monotonic() > deadline:
                raise UnavailableError("another engine runs in this data folder, and renews its lease")
            stopping.wait(POLL_SECONDS)
        return None

    def close(self, *, release: bool) -> None:
        """Stop the renewals; with `release`, end the lease, so that the next engine needn't wait."""
        self._recurring.stop(None)
        if release:
            # If Postgres can't be reached, the lease isn't released, and expires by itself.
            with suppress(UnavailableError):
                self._held.release()

    def _renew(self) -> None:
        # If Postgres is down, no other engine can claim the lease, so the jobs continue. If only this engine can't
        # reach Postgres, another engine may claim the lease. Until this engine notices that at its next renewal, it
        # writes to folders that nobody reads.
        token = self._held.token
        if not self._held.keep(succeeds=False):
            log.error("another engine has claimed the jobs: this one, with token %s, stops", token)
            self._recurring.stop(0)
            self._on_loss()


def current_checkpoint(root: Path, job: str) -> Path:
    """Return the folder of a job's checkpoint for an engine that shares its jobs with no other."""
    return max(_checkpoints(root, job), key=_token_of, default=root / job)


def checkpoint_for(root: Path, job: str, token: int) -> Path:
    """Return the folder of a job's checkpoint for a token; at its first use it gets a copy of the previous owner's.

    A previous owner that still runs finds its folder gone, or creates it again, and nobody reads it. Files of a
    checkpoint never change once they have their final name, so a copy can use hard links.
    """
    mine = root / f"{_TOKEN}{token}" / job
    if mine.is_dir():
        return mine
    before = sorted(_checkpoints(root, job), key=_token_of)
    scratch = mine.with_name(f"{job}{_NEW}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    if before:
        _copy(before[-1], scratch, mine)
    scratch.rename(mine)
    for left in before:
        remove_checkpoint(left)
    return mine


def remove_checkpoint(folder: Path) -> None:
    """Remove the folder of a checkpoint, and the folder of its token if no other checkpoint is in it."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.parent.name.startswith(_TOKEN):
        # `rmdir` fails if the folder has another checkpoint, which another engine may have added just now. The folder
        # stays then.
        with suppress(OSError):
            folder.parent.rmdir()


def remove_gone(root: Path, gone: Collection[str]) -> frozenset[str]:
    """Remove all folders of jobs that are gone, and return the jobs that had any."""
    names = {job + suffix: job for job in gone for suffix in _SUFFIXES}
    found = [folder for place in (root, *root.glob(f"{_TOKEN}*")) for folder in place.glob("*") if folder.name in names]
    for folder in found:
        remove_checkpoint(folder)
    return frozenset(names[folder.name] for folder in found)


def _checkpoints(root: Path, job: str) -> Iterator[Path]:
    """Return the folders of a job's checkpoint that contain a committed batch."""
    folders = (root / job, *root.glob(f"{_TOKEN}*/{job}"))
    return (folder for folder in folders if (folder / "commits").is_dir())


def _token_of(folder: Path) -> int:
    """Return the token of a checkpoint's folder; that of an engine without a token counts as token 0."""
    token = folder.parent.name.removeprefix(_TOKEN)
    return int(token) if token.isdigit() else 0


def _copy(job: Path, into: Path, final: Path) -> None:
    """Copy a checkpoint that may still be written to: first the list of commits, then the files that they refer to."""
    for path in (job / "commits", job):
        for folder, _, files in os.walk(path):
            for name in files:
                source = Path(folder) / name
                target = into / source.relative_to(job)
                target.parent.mkdir(parents=True, exist_ok=True)
                # The first pass has copied the list of commits. The second one leaves out commits that the previous
                # owner made since, because the copy may lack their files. A file that has vanished in between was
                # deleted by Spark's retention.
                newer = path == job and source.is_relative_to(job / "commits")
                if not newer and not name.endswith(".tmp"):
                    with suppress(FileNotFoundError):
                        if _METADATA in source.parts:
                            _rewrite(source, target, job, final)
                        else:
                            _share(source, target)


def _rewrite(source: Path, target: Path, job: Path, final: Path) -> None:
    """Copy a file of operator metadata, which names schema files by their absolute paths, with these paths replaced."""
    # A copied checksum would be wrong for the new text; Spark also reads files without one.
    if not source.name.endswith(".crc"):
        target.write_bytes(source.read_bytes().replace(bytes(job), bytes(final)))


def _share(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        # The file system has no hard links, so the file is copied.
        shutil.copy2(source, target)
