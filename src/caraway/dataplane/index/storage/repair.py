"""The repair of a database that can't be used: it is moved aside, and a new one begins with a snapshot or empty.

Nothing is lost by that, because the topics have all of the content. The state of a repair has to outlive a restart, so
it is kept in files in the folder of the database and beside this folder.
"""

import logging
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rocksdict import Cache, Rdict, WriteBatch

from caraway.dataplane.index.storage.database import TRANSLATED, DamagedError, open_database, scan_database
from caraway.dataplane.index.storage.keys import (
    META,
    after,
    clock_key,
    emission_key,
    left_out_key,
    max_event_time_key,
    newest_input_key,
    offset_key,
)
from caraway.errors import ConflictError, UnavailableError
from caraway.process.private_files import sync

LOGGER = logging.getLogger(__name__)

FORMAT_KEY = META + b"format"
# The file of this name in the folder of the database requests that the database be built anew. It is written when a
# read finds damage.
DAMAGED = "DAMAGED"
# The file of this name holds the name of the snapshot from which the database began. If the database turns out damaged,
# this snapshot and later ones may contain the damaged table too, so only older snapshots are tried.
RESTORED = "RESTORED"
# A damaged database stays open until the reads that use it end. `replace` waits for that: it tries to open the database
# at this interval, and gives up after the timeout. Both are in seconds.
RETRY_S = 0.05
TIMEOUT_S = 10.0

# The offsets that each index had reached in a damaged database, by asset and partition. Reads are refused until the new
# database has reached them too, because before that it would return older rows than the damaged one did.
Due = dict[bytes, dict[int, int]]
# A function that puts a snapshot into a folder that doesn't exist yet, and returns the snapshot's name; None if there
# is no snapshot. Its arguments are the folder, the format of the database, and the name of a snapshot that is skipped
# together with all later ones, or "" (`caraway.dataplane.index.storage.snapshots`).
Restore = Callable[[Path, bytes, str], str | None]

_DECODE_DUE = msgspec.json.Decoder(dict[str, dict[int, int]]).decode


@dataclass(frozen=True, slots=True)
class DatabaseFolder:
    """The folder of a database of a format, whose blocks are cached in `cache`."""

    path: Path
    format: bytes
    cache: Cache
    restore: Restore | None

    def open(self) -> Rdict:
        """Return the opened database; one that can't be used is moved aside and replaced by a new one.

        Raises `ConflictError` if another process has it open, and `UnavailableError` if the folder can't be used.
        """
        if is_marked(self.path):
            return self._replace("it was found damaged")
        if not self.path.exists() or not any(self.path.iterdir()):
            return self._begin()
        db: Rdict | None = None
        try:
            db = open_database(self.path, self.cache)
            with TRANSLATED:
                found = db.get(FORMAT_KEY)
            # All entries of the database itself (`META`) are read now, because no topic can be followed without the
            # offsets among them. Damage of other entries is found when they are read.
            for _ in scan_database(db, META, after(META)):
                pass
        except DamagedError as error:
            reason = str(error)
        else:
            if found == self.format:
                return db
            reason = f"its format is {found!r}, wanted is {self.format!r}"
        if db is not None:
            db.close()
        return self._replace(reason)

    def replace(self) -> Rdict:
        """Return a new database in place of a damaged one that the caller has closed; wait until no read has it open.

        Raises `UnavailableError` if the folder can't be used, or reads don't end; the caller may try again.
        """
        try:
            if not self.path.exists():
                return self._begin()
            self._wait_until_free()
            return self._replace("it was found damaged")
        except OSError as error:
            raise UnavailableError(f"no new index database can be made at {self.path}: {error}") from error

    def _replace(self, reason: str) -> Rdict:
        restored = self.path / RESTORED
        older_than = restored.read_text(encoding="utf-8", errors="replace") if restored.exists() else ""
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}-{time.monotonic_ns()}")
        self.path.rename(aside)
        LOGGER.error(
            "the index database at %s can't be used (%s): moved to %s, built anew from a snapshot or Kafka",
            self.path,
            reason,
            aside,
        )
        return self._begin(older_than)

    def _begin(self, older_than: str = "") -> Rdict:
        """Create a database and return it; it begins with a snapshot older than `older_than` if there is one."""
        if self.restore is not None:
            folder = self.path.with_name(f"{self.path.name}.restoring")
            shutil.rmtree(folder, ignore_errors=True)
            name = self.restore(folder, self.format, older_than)
            if name is not None and self._prepare(folder, name):
                folder.rename(self.path)
                sync(self.path.parent)
                LOGGER.info("the index begins with snapshot %s and goes on from its offsets", name)
            shutil.rmtree(folder, ignore_errors=True)
        db = open_database(self.path, self.cache)
        with TRANSLATED:
            db.put(FORMAT_KEY, self.format)
            # The format must be on the disk before anything else. If a power failure removed it, the database would
            # look like one of another format, and would be moved aside.
            db.flush_wal(sync=True)
        return db

    def _prepare(self, folder: Path, name: str) -> bool:
        """Prepare a snapshot for use as the database; return whether it is usable."""
        try:
            db = open_database(folder, self.cache)
            with TRANSLATED:
                sound: bool = db.get(FORMAT_KEY) == self.format
                # A snapshot lacks the rows that were emitted after it was taken. So the data of an index that emits
                # rows is removed from the restored database. The index is built anew, and reads from its output topic
                # which rows it has emitted.
                prefix = emission_key(b"")
                for key, _ in list(scan_database(db, prefix, after(prefix))):
                    db.write(removal_of(key[len(prefix) :]))
                db.close()
        except DamagedError:
            LOGGER.exception("snapshot %s of the index can't be used", name)
            return False
        (folder / RESTORED).write_text(name, encoding="utf-8")
        return sound

    def _wait_until_free(self) -> None:
        """Wait until no read holds the damaged database any more; until then RocksDB may write files to its folder."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                open_database(self.path, self.cache).close()
            except ConflictError as error:
                if time.monotonic() > deadline:
                    raise UnavailableError(f"reads of the damaged database don't end: {error}") from error
            except UnavailableError:
                return
            else:
                return
            time.sleep(RETRY_S)


def removal_of(asset: bytes) -> WriteBatch:
    """Return the writes that remove all data of an asset."""
    batch = WriteBatch(raw_mode=True)
    batch.delete_range(asset, after(asset))
    prefix = offset_key(asset, 0)[:-4]
    batch.delete_range(prefix, after(prefix))
    batch.delete(max_event_time_key(asset))
    batch.delete(clock_key(asset))
    batch.delete(emission_key(asset))
    batch.delete(newest_input_key(asset))
    batch.delete(left_out_key(asset))
    return batch


def mark(path: Path, reason: str) -> None:
    """Request that the database in the folder `path` be built anew."""
    (path / DAMAGED).write_text(reason, encoding="utf-8")


def is_marked(path: Path) -> bool:
    """Return whether the database in the folder `path` is to be built anew."""
    return (path / DAMAGED).exists()


def due_of(path: Path) -> Due | None:
    """Return the offsets that indexes must reach before reads are allowed; None if reads are allowed already."""
    file = _due_file(path)
    if not file.exists():
        return None
    return {bytes.fromhex(asset): offsets for asset, offsets in _DECODE_DUE(file.read_bytes()).items()}


def write_due(path: Path, due: Mapping[bytes, Mapping[int, int]] | None) -> None:
    """Write the offsets that indexes must reach before reads are allowed; None allows reads."""
    file = _due_file(path)
    if due is None:
        file.unlink(missing_ok=True)
        return
    part = file.with_name(f"{file.name}.part")
    part.write_bytes(msgspec.json.encode({asset.hex(): offsets for asset, offsets in due.items()}))
    part.replace(file)


def _due_file(path: Path) -> Path:
    # The file lies beside the database's folder, not in it: it must stay when a damaged database is moved aside.
    return path.with_name(f"{path.name}.due")
