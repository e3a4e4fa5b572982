"""The database of an index process: one RocksDB, held by one process."""

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

from rocksdict import (
    BottommostLevelCompaction,
    Cache,
    CompactOptions,
    DbClosedError,
    IngestExternalFileOptions,
    RdictIter,
    WriteBatch,
)

from caraway.dataplane.index.storage.database import MEBIBYTE, TRANSLATED, DamagedError, scan_database
from caraway.dataplane.index.storage.geometry import DEFAULT_GEOMETRY, Geometry
from caraway.dataplane.index.storage.keys import META, after, left_out_key, offset_key
from caraway.dataplane.index.storage.repair import (
    FORMAT_KEY,
    DatabaseFolder,
    Restore,
    due_of,
    is_marked,
    mark,
    removal_of,
    write_due,
)
from caraway.dataplane.index.storage.signals import Signals
from caraway.dataplane.index.storage.tables import write_table
from caraway.errors import UnavailableError

LOGGER = logging.getLogger(__name__)

# The version of the entries' layout, which is part of the format stored in the database. A database of another version
# is moved aside and built anew from the topics.
FORMAT = b"2"
CACHE_BYTES = 96 * MEBIBYTE
# The number of tables, of 64 MiB each, that a step of `IndexStore.rewrite` rewrites.
REWRITTEN_AT_ONCE = 8


class IndexStore:
    """Entries by asset and key, and for each asset the offsets up to which its entries account for the topic.

    All methods raise DamagedError if the database is damaged, and UnavailableError if it is being built anew or the
    disk fails.
    """

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
        one begins with the snapshot that `restore` returns, or empty. If `shared`, counters are kept for the processes
        that read the database (`caraway.dataplane.index.storage.follower`).

        Raises `ConflictError` if another process has it open, and `UnavailableError` if the folder can't be used.
        """
        self.path = path
        self.geometry = geometry
        self.format = format_of(geometry)
        self._folder = DatabaseFolder(path, self.format, Cache(cache_bytes), restore)
        self._found_damaged = False
        self.db = self._folder.open()
        # A process that was killed during a load has left tables there.
        self.end_load()
        # After a repair: the offsets that indexes must reach before reads are allowed, by asset and partition. None if
        # reads are allowed.
        self.due = due_of(path)
        self._signals = Signals(path) if shared else None
        if self._signals is not None:
            self._signals.refuse(refusing=self.refusing)
            self._signals.opened(self.db)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get(self, key: bytes) -> bytes | None:
        """Return the value of an entry, None if there is none."""
        with TRANSLATED:
            value: bytes | None = self.db.get(key)
        return value

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of several entries, None for those that aren't there."""
        with TRANSLATED:
            values: list[bytes | None] = self.db.get(keys) or []  # type: ignore[arg-type]
        return values

    def iterator(self) -> RdictIter:
        """Return an iterator over all entries as they are now; it doesn't show later writes."""
        try:
            return self.db.iter()
        except DbClosedError as error:
            raise UnavailableError("the index database is being built anew or closed") from error

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries from `first` up to, not including, `end`, as they are now."""
        return scan_database(self.db, first, end)

    def batch(self) -> WriteBatch:
        """Return an empty batch of writes."""
        return WriteBatch(raw_mode=True)

    def write(self, batch: WriteBatch) -> None:
        """Write a batch as a whole or not at all. It survives the end of the process, not a loss of power."""
        with TRANSLATED:
            self.db.write(batch)
            if self._signals is not None:
                self._signals.written(self.db)

    def sync(self) -> None:
        """Make all writes so far survive a loss of power too."""
        with TRANSLATED:
            self.db.flush_wal(sync=True)

    def offsets(self, asset: bytes) -> dict[int, int]:
        """Return the next offset of each partition of the asset's topic; partitions never read are missing."""
        prefix = offset_key(asset, 0)[:-4]
        return {int.from_bytes(key[-4:]): int.from_bytes(value[:8]) for key, value in self.scan(prefix, after(prefix))}

    def epochs(self, asset: bytes) -> dict[int, int]:
        """Return the epoch of the leader that wrote the record before the next offset, where it is known."""
        prefix = offset_key(asset, 0)[:-4]
        found = self.scan(prefix, after(prefix))
        return {int.from_bytes(key[-4:]): int.from_bytes(value[8:]) for key, value in found if len(value) > 8}

    def put_offset(
        self, batch: WriteBatch, asset: bytes, partition: int, offset: int, epoch: int | None = None
    ) -> None:
        """Add to `batch` that the asset accounts for its topic's partition up to `offset`, exclusive.

        `epoch` is that of the leader that wrote the record before the offset, None if it isn't known.
        """
        batch.put(offset_key(asset, partition), offset.to_bytes(8) + (b"" if epoch is None else epoch.to_bytes(4)))

    def left_out(self, asset: bytes) -> int:
        """Return how many records the asset left out since its data begin, because it couldn't take them."""
        return int.from_bytes(self.get(left_out_key(asset)) or b"")

    def add_left_out(self, batch: WriteBatch, asset: bytes, records: int) -> None:
        """Add to `batch` that the asset left out `records` more. Only the writer of the asset may call this."""
        batch.put(left_out_key(asset), (self.left_out(asset) + records).to_bytes(8))

    def assets(self) -> set[bytes]:
        """Return the assets that have offsets, that is, data."""
        prefix = META + b"offset"
        return {key[len(prefix) : -4] for key, _ in self.scan(prefix, after(prefix))}

    def drop(self, asset: bytes) -> None:
        """Remove all data of an asset."""
        self.write(removal_of(asset))

    def begin_load(self) -> Path:
        """Return an empty folder for the tables of a load, on the same disk as the database."""
        self.end_load()
        folder = _load_folder(self.path)
        folder.mkdir()
        return folder

    def end_load(self) -> None:
        """Remove the folder of a load, and what is left there."""
        shutil.rmtree(_load_folder(self.path), ignore_errors=True)

    def has_data(self, asset: bytes) -> bool:
        """Return whether an asset has entries or offsets."""
        return bool(self.offsets(asset)) or next(self.scan(asset, after(asset)), None) is not None

    def rewrite(self, asset: bytes) -> None:
        """Rewrite the tables with removed entries of an asset, so that nothing is left of the entries."""
        options = CompactOptions()
        # By default RocksDB may move a table to its lowest level as it is, with the marks of what was removed.
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        end = after(asset)
        with TRANSLATED:
            self.db.flush()
            begins = sorted({table["start_key"] for table in self.db.live_files() if asset < table["start_key"] < end})
            # RocksDB compacts nothing else meanwhile, and stops writers if too many new tables wait for it. So a large
            # asset is rewritten in several steps.
            for first, last in pairwise((asset, *begins[REWRITTEN_AT_ONCE::REWRITTEN_AT_ONCE], end)):
                self.db.compact_range(first, last, options)

    def load(self, asset: bytes, tables: Sequence[Path], offsets: Mapping[int, int]) -> None:
        """Take tables with all entries of an asset that has no data, as a whole or not at all; the files are moved.

        The load survives a loss of power.

        Args:
            asset: The asset.
            tables: The tables, in the folder of `begin_load`. No two of them overlap.
            offsets: The next offset of each partition of the asset's topic.
        """
        own = _load_folder(self.path) / "offsets.sst"
        write_table(own, ((offset_key(asset, p), offset.to_bytes(8)) for p, offset in sorted(offsets.items())))
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        try:
            with TRANSLATED:
                self.db.ingest_external_file([str(path) for path in (own, *tables)], options)
        except DamagedError as error:
            # The tables that were given are damaged, not the database.
            raise UnavailableError(f"the tables of a load can't be taken: {error}") from error
        # Tables may leave RocksDB's number of the last write as it is, by which snapshots see that something is new. So
        # an entry is written that is there already.
        batch = self.batch()
        batch.put(FORMAT_KEY, self.format)
        self.write(batch)
        if self._signals is not None:
            # A catch-up of a reading process might see this write and not yet the tables. So these processes open the
            # database anew.
            self._signals.opened(self.db)

    def size_bytes(self) -> int:
        """Return the size of the tables in bytes."""
        try:
            return self.db.property_int_value("rocksdb.total-sst-files-size") or 0
        except DbClosedError:
            # The old database is closed while a new one is built.
            return 0

    def tables(self) -> frozenset[str]:
        """Return the names of the table files on the disk."""
        return frozenset(path.name for path in self.path.glob("*.sst"))

    def unused_tables(self) -> frozenset[str]:
        """Return the names of table files that aren't in use by the database: no longer, or not yet."""
        # The disk is listed before the tables in use. In the other order, a table that comes into use between the two
        # listings would be returned as unused.
        tables = self.tables()
        with TRANSLATED:
            return tables - {str(table["name"]).lstrip("/") for table in self.db.live_files()}

    @property
    def damaged(self) -> bool:
        """True if a read found damage, in this process or in one that shares the database."""
        return self._found_damaged or is_marked(self.path)

    def mark_damaged(self, reason: str) -> None:
        """Request that the database be built anew, now (`index.feeding.worker`) or at the next start."""
        if self._found_damaged:
            return
        self._found_damaged = True
        LOGGER.error("the index database at %s is damaged (%s) and is to be built anew", self.path, reason)
        mark(self.path, reason)

    @property
    def refusing(self) -> bool:
        """True while reads are refused, because the database was damaged and doesn't have all of its content again."""
        return self.due is not None

    def begin_anew(self, due: Mapping[bytes, Mapping[int, int]]) -> None:
        """Replace a damaged database, which is moved aside, by a new one. No other thread may write meanwhile.

        The new one begins with a snapshot or empty, so reads are refused until `end_refusing`, also after a restart.
        `due` has the offsets that each index had reached in the damaged one.

        Raises `UnavailableError` if the folder can't be used; the caller may try again.
        """
        self.due = {asset: dict(offsets) for asset, offsets in due.items()}
        if self._signals is not None:
            self._signals.refuse(refusing=True)
        with suppress(DbClosedError):
            self.db.close()
        try:
            write_due(self.path, self.due)
        except OSError as error:
            raise UnavailableError(f"no new index database can be made at {self.path}: {error}") from error
        self.db = self._folder.replace()
        self._found_damaged = False
        if self._signals is not None:
            self._signals.opened(self.db)

    def end_refusing(self) -> None:
        """Allow reads of the database again."""
        write_due(self.path, None)
        self.due = None
        if self._signals is not None:
            self._signals.refuse(refusing=False)

    def close(self) -> None:
        """Write what is in memory to disk and release the folder."""
        self.db.close()


def _load_folder(path: Path) -> Path:
    return path.with_name(f"{path.name}.loading")


def format_of(geometry: Geometry) -> bytes:
    """Return the format of a database with this layout and pyramids of this shape."""
    return FORMAT + b" " + geometry.describe()
