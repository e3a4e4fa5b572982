"""Copies of the database in the object store, from which a new owner of an index starts.

A snapshot is a manifest that lists the files of the database by their digests. RocksDB never changes a table, so most
files are in the object store since earlier snapshots. The manifest is written after all files, so a snapshot exists as
a whole or not at all. Its name has the digest of its content, by which later damage is found.
"""

import logging
import shutil
import time
from collections.abc import Callable, Hashable
from hashlib import file_digest, sha256
from pathlib import Path

import msgspec
from rocksdict import Checkpoint

from caraway.dataplane.index.storage.database import TRANSLATED
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.objects.folder import Digest, ObjectFolder, Stored
from caraway.errors import UnavailableError
from caraway.process.recurring import Recurring

LOGGER = logging.getLogger(__name__)

FOLDER = "index-snapshots"
MANIFESTS, FILES = f"{FOLDER}/manifests", f"{FOLDER}/files"
# The number of snapshots that are kept in the object store: more than one, since the newest may turn out damaged.
KEPT = 3
# The seconds for which a file stays in the object store although no manifest lists it. Files are written before their
# manifest, so a younger file may belong to a snapshot that another server is taking.
GRACE_S = 3600.0
# The longest wait for a flush in the background, and the pause between two looks, in seconds. A checkpoint flushes the
# write buffer too, but holds Python's global lock while it does: 250 ms for a full buffer. If the buffer was flushed in
# the background before, the checkpoint holds the lock for some 10 ms.
SETTLE_S = 10.0
SETTLE_POLL_S = 0.02


class File(msgspec.Struct, frozen=True):
    """A file of the database."""

    name: str
    digest: Digest
    size: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot: its files, when it was begun (microseconds), the format of the database."""

    taken_us: int
    format: str
    files: list[File]


_DECODE = msgspec.json.Decoder(Manifest).decode


# The inode of a file, its size, and the time of its last change in nanoseconds. If these are the same as in the last
# snapshot, the file hasn't changed, and its digest isn't computed again.
_State = tuple[int, int, int]


class Snapshots:
    """Takes snapshots of an index and restores them. For one thread at a time."""

    def __init__(
        self,
        objects: ObjectFolder,
        *,
        kept: int = KEPT,
        grace_s: float = GRACE_S,
        clock: Callable[[], float] = time.time,
        part: str = "",
    ) -> None:
        """Keep the newest `kept` snapshots in `objects`; `clock` returns the time in seconds since the epoch.

        `part` is the name of a part of the index that is a database of its own, with its own snapshots.
        """
        self._manifests, self._files = (f"{part}/{folder}" if part else folder for folder in (MANIFESTS, FILES))
        self._objects = objects
        self._kept = kept
        self._grace_s = grace_s
        self._clock = clock
        self._known: dict[str, tuple[_State, Digest]] = {}
        self._taken_at: int | None = None

    def take(self, store: IndexStore, *, only: bool = False) -> Manifest | None:
        """Take a snapshot; return None if nothing was written since the last one of this process.

        With `only` a snapshot is taken in any case, and replaces all older ones.

        Raises `UnavailableError` if the object store doesn't take it, or the database is too busy or damaged.
        """
        taken_us = int(self._clock() * 1e6)
        sequence = store.db.latest_sequence_number()
        if sequence == self._taken_at and not only:
            return None
        folder = store.path.with_name(f"{store.path.name}.snapshot")
        shutil.rmtree(folder, ignore_errors=True)
        try:
            with TRANSLATED:
                _settle(store)
                Checkpoint(store.db).create_checkpoint(str(folder))
            files = self._put(folder)
        except OSError as error:
            raise UnavailableError(f"no snapshot of the index at {store.path} can be taken: {error}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        manifest = Manifest(taken_us=taken_us, format=store.format.decode(), files=files)
        content = msgspec.json.encode(manifest)
        self._objects.write(f"{self._manifests}/{manifest.taken_us:020d}-{sha256(content).hexdigest()}.json", content)
        self._taken_at = sequence
        self.tidy(1 if only else self._kept)
        return manifest

    def restore(self, folder: Path, wanted: bytes, older_than: str = "") -> str | None:
        """Put the newest sound snapshot of the format `wanted` into `folder`, which must not exist yet.

        Only snapshots older than the one named `older_than` are taken, which turned out damaged. The name of the
        snapshot is returned; None if there is no sound one, or the object store doesn't answer.
        """
        try:
            for stored in sorted(self._objects.stored(self._manifests), key=lambda stored: stored.name, reverse=True):
                if older_than and stored.name >= older_than:
                    continue
                manifest = self._read(stored)
                if manifest is None or manifest.format != wanted.decode():
                    continue
                folder.mkdir(parents=True)
                if self._fetch(manifest, folder):
                    return stored.name
                shutil.rmtree(folder)
                LOGGER.error("snapshot %s of the index isn't complete: an older one is tried", stored.name)
        except UnavailableError as error:
            shutil.rmtree(folder, ignore_errors=True)
            LOGGER.warning("no snapshot of the index can be fetched, so it is built anew from Kafka: %s", error)
        return None

    def _put(self, folder: Path) -> list[File]:
        """Write the files of a checkpoint that the object store doesn't have yet, and return all of them."""
        there = {stored.name: stored.size for stored in self._objects.stored(self._files)}
        files = []
        known: dict[str, tuple[_State, Digest]] = {}
        for path in sorted(folder.iterdir()):
            (_, size, _), digest = known[path.name] = self._digest(path)
            name = f"{self._files}/{digest}"
            if there.get(name) != size and self._objects.put(path, name) != digest:
                raise UnavailableError(f"{path.name} changed while it was read")
            files.append(File(path.name, digest, size))
        self._known = known
        return files

    def _digest(self, path: Path) -> tuple[_State, Digest]:
        """Return a file's state and digest; a file that hasn't changed since the last snapshot isn't read again."""
        found = path.stat()
        state = found.st_ino, found.st_size, found.st_mtime_ns
        known = self._known.get(path.name)
        if known is not None and known[0] == state:
            return known
        with path.open("rb") as file:
            return state, file_digest(file, "sha256").hexdigest()

    def _read(self, stored: Stored) -> Manifest | None:
        """Return a manifest, None if it doesn't have the digest in its name."""
        content = self._objects.read(stored.name)
        if sha256(content).hexdigest() not in stored.name:
            LOGGER.error("the manifest %s of an index snapshot is damaged", stored.name)
            return None
        return _DECODE(content)

    def _fetch(self, manifest: Manifest, folder: Path) -> bool:
        """Copy the files of a snapshot, and return whether all of them have the digests of the manifest."""
        there = {stored.name for stored in self._objects.stored(self._files)}
        return all(
            f"{self._files}/{file.digest}" in there
            and self._objects.fetch(f"{self._files}/{file.digest}", folder / file.name) == file.digest
            for file in manifest.files
        )

    def tidy(self, kept: int | None = None) -> bool:
        """Remove old snapshots, and the files that no manifest lists; return whether no such file is left.

        Raises `UnavailableError` if the object store doesn't answer.
        """
        kept = self._kept if kept is None else kept
        manifests = sorted(self._objects.stored(self._manifests), key=lambda stored: stored.name)
        needed: set[str] = set()
        for stored in manifests[-kept:]:
            manifest = self._read(stored)
            if manifest is not None:
                needed |= {f"{self._files}/{file.digest}" for file in manifest.files}
        for stored in manifests[:-kept]:
            self._objects.remove(stored.name)
        oldest = self._clock() - self._grace_s
        self._objects.tidy(oldest)
        unneeded = [stored for stored in self._objects.stored(self._files) if stored.name not in needed]
        for stored in unneeded:
            if stored.written_at < oldest:
                self._objects.remove(stored.name)
        return all(stored.written_at < oldest for stored in unneeded)


def _settle(store: IndexStore) -> None:
    """Wait until the database has written its memory to tables, without holding Python's lock."""
    _wait_until_flushed(store)
    store.db.flush(wait=False)
    _wait_until_flushed(store)


def _wait_until_flushed(store: IndexStore) -> None:
    deadline = time.monotonic() + SETTLE_S
    while store.db.property_int_value("rocksdb.num-immutable-mem-table"):
        if time.monotonic() > deadline:
            raise UnavailableError("the index database is too busy for a snapshot")
        time.sleep(SETTLE_POLL_S)


class SnapshotKeeper(Recurring):
    """A thread that takes a snapshot every `seconds`, the first one after an interval. The store must outlive it."""

    def __init__(self, snapshots: Snapshots, store: IndexStore, seconds: float) -> None:
        """Prepare to take `snapshots` of `store`."""
        self._snapshots = snapshots
        self._store = store
        # The last reason for which `renew` has requested a snapshot that replaces all older ones, and the last reason
        # for which such a snapshot was taken.
        self._asked: Hashable = None
        self._renewed: Hashable = None
        # True while the object store may still have files of replaced snapshots. Young files stay there for a while
        # (`GRACE_S`).
        self._is_untidy = False
        super().__init__("index-snapshots", self._take, seconds)

    def renew(self, reason: Hashable) -> bool:
        """Ask for a snapshot that replaces all older ones; return whether it was taken since first asked for a reason.

        The caller asks again until it was. There may be only one caller.
        """
        if self._renewed == reason:
            return True
        if self._asked != reason:
            self._asked = reason
            self.wake()
        return False

    def _take(self) -> None:
        if self._store.damaged:
            return
        if (asked := self._asked) != self._renewed:
            self._snapshots.take(self._store, only=True)
            self._renewed, self._is_untidy = asked, True
        elif self._snapshots.take(self._store) is None and self._is_untidy:
            # Nothing was written since the last snapshot, so no new one was taken. Files of replaced snapshots are
            # otherwise removed after a new snapshot only, so they are removed here.
            self._is_untidy = not self._snapshots.tidy()
