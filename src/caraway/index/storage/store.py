"""The database of an index process: one RocksDB, held by one process."""

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
)

from caraway.errors import ConflictError, UnavailableError
from caraway.index.storage.geometry import DEFAULT_GEOMETRY, Geometry
from caraway.index.storage.keys import META, after, emission_key, max_event_time_key, offset_key
from caraway.index.storage.shared_counters import SharedCounters

LOGGER = logging.getLogger(__name__)

_DECODE_DUE = msgspec.json.Decoder(dict[str, dict[int, int]]).decode

# The version of the entries' layout. A database of another version is built anew from the topics.
FORMAT = b"2"
FORMAT_KEY = META + b"format"

# The counters that a writer keeps for other processes that read its database (`caraway.index.storage.follower`): a
# number that differs after each start, RocksDB's number of the last write since the start, and whether reads are
# refused (`begin_anew`).
GENERATION, SEQUENCE, REFUSING = 0, 1, 2
COUNTERS = 3

# The name of the file that requests that the database be built anew, because a read found it damaged.
DAMAGED = "DAMAGED"
# The name of the file with the name of the snapshot from which the database began. If the database turns out damaged,
# later snapshots may contain the same damaged table, so only older ones are tried.
RESTORED = "RESTORED"
# The pause between attempts to open the damaged database while reads still have it open.
RETRY_S = 0.05
TIMEOUT_S = 10.0

MEBIBYTE = 1 << 20
CACHE_BYTES = 96 * MEBIBYTE
# The size of each of two buffers, one being filled and one being flushed: 200,000 entries between flushes, 32 MiB of
# memory.
WRITE_BUFFER_BYTES = 16 * MEBIBYTE
WRITE_BUFFERS = 2
# The size of the write-ahead log, which is read again after a kill: 64 MiB take less than a second.
LOG_BYTES = 64 * MEBIBYTE
# Bits of the Bloom filter for each key: at 10, one of a hundred lookups of a missing key reads from disk.
BLOOM_BITS = 10


# A function that puts a snapshot of a format into a folder that doesn't exist yet, and returns the snapshot's name;
# None if there is none. The last argument is the name of a snapshot; it and all later ones are skipped
# (`caraway.index.storage.snapshots`).
Restore = Callable[[Path, bytes, str], str | None]


class IndexStore:
    """Entries by asset and key, and for each asset the offsets up to which its entries account for the topic."""

    def __init__(
        self,
        path: Path,
        *,
        geometry: Geometry = DEFAULT_GEOMETRY,
        cache_bytes: int = CACHE_BYTES,
        restore: Restore | None = None,
        shared: bool = False,
    ) -> None:
        """Open the database in the folder `path`, or create it.

        A database that is damaged or of another format is moved aside, since the topics have all of its content. A new
        one begins with the snapshot that `restore` returns, or empty.

        Args:
            path: Folder of the database.
            geometry: Shape of the tile pyramids.
            cache_bytes: Size of the cache of blocks read, index and filters included.
            restore: The function that restores a snapshot.
            shared: True if other processes read it (`caraway.index.storage.follower`), so shared counters are kept for
                them.

        Raises:
            ConflictError: Another process has it open.
            UnavailableError: The folder can't be read or written.
        """
        self.path = path
        self.geometry = geometry
        self._found_damaged = False
        self.format = format_of(geometry)
        self._restore = restore
        self._counters: SharedCounters | None = None
        self._cache = Cache(cache_bytes)
        older_than = _began_with(path) if (path / DAMAGED).exists() else ""
        if (path / DAMAGED).exists():
            _move_aside(path, "it was found damaged")
        self.db = self._open_sound(older_than)
        self.due = _due(path)
        self._notifying = threading.Lock()
        self._counters = counters_of(path) if shared else None
        self._publish_generation()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get(self, key: bytes) -> bytes | None:
        """Return the value of an entry, None if there is none."""
        value: bytes | None = self.db.get(key)
        return value

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of several entries, None for those that aren't there."""
        values: list[bytes | None] = self.db.get(keys) or []  # type: ignore[arg-type]
        return values

    def iterator(self) -> RdictIter:
        """Return an iterator over all entries as they are now; it doesn't show later writes."""
        return self.db.iter()

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries from `first` up to, not including, `end`, as they are now."""
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        iterator = self.db.iter(options)
        iterator.seek(first)
        while iterator.valid():
            yield iterator.key(), iterator.value()
            iterator.next()
        check_end(iterator)

    def batch(self) -> WriteBatch:
        """Return an empty batch of writes."""
        return WriteBatch(raw_mode=True)

    def write(self, batch: WriteBatch) -> None:
        """Write a batch as a whole or not at all. It survives the end of the process, not a loss of power."""
        self.db.write(batch)
        if self._counters is not None:
            self._publish_sequence(self._counters)

    def sync(self) -> None:
        """Make all writes so far survive a loss of power too."""
        self.db.flush_wal(sync=True)

    def offsets(self, asset: bytes) -> dict[int, int]:
        """Return the next offset of each partition of the asset's topic; partitions never read are missing."""
        prefix = offset_key(asset, 0)[:-4]
        return {int.from_bytes(key[-4:]): int.from_bytes(value) for key, value in self.scan(prefix, after(prefix))}

    def put_offset(self, batch: WriteBatch, asset: bytes, partition: int, offset: int) -> None:
        """Add to `batch` that the asset accounts for its topic's partition up to `offset`, exclusive."""
        batch.put(offset_key(asset, partition), offset.to_bytes(8))

    def assets(self) -> set[bytes]:
        """Return the assets that have offsets, that is, data."""
        prefix = META + b"offset"
        return {key[len(prefix) : -4] for key, _ in self.scan(prefix, after(prefix))}

    def drop(self, asset: bytes) -> None:
        """Remove all data of an asset."""
        batch = self.batch()
        batch.delete_range(asset, after(asset))
        prefix = offset_key(asset, 0)[:-4]
        batch.delete_range(prefix, after(prefix))
        batch.delete(max_event_time_key(asset))
        batch.delete(emission_key(asset))
        self.write(batch)

    def size_bytes(self) -> int:
        """Return the size of the tables in bytes."""
        try:
            return self.db.property_int_value("rocksdb.total-sst-files-size") or 0
        except DbClosedError:
            # The database is being built anew.
            return 0

    def tables(self) -> frozenset[str]:
        """Return the names of the table files on the disk."""
        return frozenset(path.name for path in self.path.glob("*.sst"))

    def unused_tables(self) -> frozenset[str]:
        """Return the names of table files that aren't in use by the database: no longer, or not yet."""
        # The disk is listed first, so a table that comes into use in between isn't returned.
        tables = self.tables()
        return tables - {str(table["name"]).lstrip("/") for table in self.db.live_files()}

    @property
    def damaged(self) -> bool:
        """True if a read found damage, in this process or in one that shares the database."""
        return self._found_damaged or (self.path / DAMAGED).exists()

    def mark_damaged(self, reason: str) -> None:
        """Request that the database be built anew, now (`caraway.index.storage.rebuilding`) or at the next start."""
        if self._found_damaged:
            return
        self._found_damaged = True
        LOGGER.error("the index database at %s is damaged (%s) and is to be built anew", self.path, reason)
        (self.path / DAMAGED).write_text(reason, encoding="utf-8")

    @property
    def refusing(self) -> bool:
        """True while reads are refused, because the database was damaged and doesn't have all of its content again."""
        return self.due is not None

    def begin_anew(self, due: Mapping[bytes, Mapping[int, int]]) -> None:
        """Replace a damaged database, which is moved aside, by a new one. No other thread may write meanwhile.

        The new one begins with a snapshot or empty, so reads are refused until `end_refusing`, also after a restart.

        Args:
            due: The progress of each index before: the offsets for which it accounted.

        Raises:
            UnavailableError: The folder can't be used; the caller may try again.
        """
        self.due = {asset: dict(offsets) for asset, offsets in due.items()}
        if self._counters is not None:
            self._counters[REFUSING] = 1
        with suppress(DbClosedError):
            self.db.close()
        try:
            _write_due(self.path, self.due)
            older_than = _began_with(self.path)
            if self.path.exists():
                self._wait_until_free()
                _move_aside(self.path, "it was found damaged")
            self.db = self._begin(older_than)
        except OSError as error:
            raise UnavailableError(f"no new index database can be made at {self.path}: {error}") from error
        self._found_damaged = False
        self._publish_generation()

    def end_refusing(self) -> None:
        """Allow reads of the database again."""
        _due_file(self.path).unlink(missing_ok=True)
        self.due = None
        if self._counters is not None:
            self._counters[REFUSING] = 0

    def close(self) -> None:
        """Write what is in memory to disk and release the folder."""
        self.db.close()

    def _publish_generation(self) -> None:
        if self._counters is not None:
            self._counters[REFUSING] = int(self.refusing)
            # The generation is written after the sequence is reset: a process that sees the new generation opens the
            # database anew, and then has all of it.
            self._counters[SEQUENCE] = 0
            self._counters[GENERATION] = time.time_ns()
            self._publish_sequence(self._counters)

    def _publish_sequence(self, counters: SharedCounters) -> None:
        # Two threads write. Without the lock the older sequence number might be stored last.
        with self._notifying:
            counters[SEQUENCE] = self.db.latest_sequence_number()

    def _open_sound(self, older_than: str) -> Rdict:
        """Return the opened database; one that can't be used is moved aside and replaced by a new one."""
        wanted = self.format
        db: Rdict | None = None
        try:
            if not self.path.exists() or not any(self.path.iterdir()):
                return self._begin(older_than)
            db = self._open(self.path)
            found = db.get(FORMAT_KEY)
            # Without the progress of the indexes their topics can't be followed, so these entries are checked now.
            # Damage of other entries is found when they are read.
            _read_all(db, META)
        except Exception as error:
            if not is_damage(error):
                raise self._refused(error) from error
            reason = str(error)
        else:
            if found == wanted:
                return db
            reason = f"its format is {found!r}, wanted is {wanted!r}"
        if db is not None:
            db.close()
        older_than = _began_with(self.path)
        _move_aside(self.path, reason)
        return self._begin(older_than)

    def _begin(self, older_than: str = "") -> Rdict:
        """Create a database and return it; it begins with a snapshot older than `older_than` if there is one."""
        if self._restore is not None:
            folder = self.path.with_name(f"{self.path.name}.restoring")
            shutil.rmtree(folder, ignore_errors=True)
            name = self._restore(folder, self.format, older_than)
            if name is not None and self._prepared(folder, name):
                folder.rename(self.path)
                LOGGER.info("the index begins with snapshot %s and goes on from its offsets", name)
            shutil.rmtree(folder, ignore_errors=True)
        db = self._open(self.path)
        db.put(FORMAT_KEY, self.format)
        return db

    def _wait_until_free(self) -> None:
        """Wait until no read holds the damaged database any more; until then RocksDB may write files to its folder."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                self._open(self.path).close()
            except Exception as error:
                if "hold by current process" not in str(error):
                    return
                if time.monotonic() > deadline:
                    raise UnavailableError(f"reads of the damaged database don't end: {error}") from error
            else:
                return
            time.sleep(RETRY_S)

    def _prepared(self, folder: Path, name: str) -> bool:
        """Prepare a snapshot for use as the database; return whether it is usable."""
        try:
            self.db = self._open(folder)
            sound: bool = self.db.get(FORMAT_KEY) == self.format
            # A snapshot doesn't know what was emitted after it was taken. An index that emits is therefore built anew,
            # and recovers its emissions from its topic.
            prefix = emission_key(b"")
            for key, _ in list(self.scan(prefix, after(prefix))):
                self.drop(key[len(prefix) :])
            self.db.close()
        except Exception as error:
            if not is_damage(error):
                raise
            LOGGER.exception("snapshot %s of the index can't be used", name)
            return False
        (folder / RESTORED).write_text(name, encoding="utf-8")
        return sound

    def _open(self, path: Path) -> Rdict:
        path.mkdir(parents=True, exist_ok=True)
        return Rdict(str(path), database_options(self._cache))

    def _refused(self, error: Exception) -> Exception:
        text = str(error)
        if "lock" in text.lower():
            return ConflictError(f"the index database at {self.path} is in use by another process ({text})")
        return UnavailableError(f"the index database at {self.path} can't be opened: {text}")


def counters_of(path: Path) -> SharedCounters:
    """Return the counters of the database in the folder `path`; they lie beside it, as it may be moved aside."""
    return SharedCounters(path.with_name(f"{path.name}.board"), COUNTERS)


def format_of(geometry: Geometry) -> bytes:
    """Return the format of a database with this layout and pyramids of this shape."""
    return FORMAT + b" " + geometry.describe()


def _read_all(db: Rdict, prefix: bytes) -> None:
    iterator = db.iter()
    iterator.seek(prefix)
    while iterator.valid() and iterator.key().startswith(prefix):
        iterator.next()
    check_end(iterator)


def check_end(iterator: RdictIter) -> None:
    """Raise if an iterator ended because it couldn't read an entry, which looks like an ordinary end."""
    if not iterator.valid():
        iterator.status()


def is_damage(error: Exception) -> bool:
    """Return whether an error of RocksDB says that its files are damaged."""
    text = str(error)
    gone = "No such file" in text and (".sst" in text or "MANIFEST" in text)
    return text.startswith("Corruption") or "NotFound" in text or gone


def _began_with(path: Path) -> str:
    restored = path / RESTORED
    return restored.read_text(encoding="utf-8", errors="replace") if restored.exists() else ""


def _due_file(path: Path) -> Path:
    """Return the file with the offsets that indexes must reach before reads are allowed; it is beside the database."""
    return path.with_name(f"{path.name}.due")


def _due(path: Path) -> dict[bytes, dict[int, int]] | None:
    file = _due_file(path)
    if not file.exists():
        return None
    read = _DECODE_DUE(file.read_bytes())
    return {bytes.fromhex(asset): offsets for asset, offsets in read.items()}


def _write_due(path: Path, due: Mapping[bytes, Mapping[int, int]]) -> None:
    part = path.with_name(f"{path.name}.due.part")
    part.write_bytes(msgspec.json.encode({asset.hex(): offsets for asset, offsets in due.items()}))
    part.replace(_due_file(path))


def _move_aside(path: Path, reason: str) -> None:
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}-{time.monotonic_ns()}")
    path.rename(aside)
    LOGGER.error(
        "the index database at %s can't be used (%s): moved to %s, built anew from a snapshot or Kafka",
        path,
        reason,
        aside,
    )


def database_options(cache: Cache) -> Options:
    """Return the options of a database whose blocks are cached in `cache`."""
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(8 * 1024)
    table.set_bloom_filter(BLOOM_BITS, block_based=False)
    # Index and filters are kept in the cache, so that memory doesn't grow with the number of keys.
    table.set_cache_index_and_filter_blocks(v=True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(v=True)
    table.set_format_version(5)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.create_if_missing(create_if_missing=True)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(WRITE_BUFFERS)
    options.set_max_total_wal_size(LOG_BYTES)
    options.set_level_compaction_dynamic_level_bytes(v=True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_background_jobs(2)
    options.set_max_open_files(512)
    options.set_keep_log_file_num(3)
    options.set_max_log_file_size(4 * MEBIBYTE)
    options.set_bytes_per_sync(MEBIBYTE)
    return options
