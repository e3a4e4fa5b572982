"""RocksDB, as the index uses it: the options of a database, and its errors as those of Caraway.

No other module knows the texts of RocksDB's errors.
"""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
)

from caraway.errors import ConflictError, UnavailableError
from caraway.process.private_files import make_lasting_folder

MEBIBYTE = 1 << 20
# RocksDB fills one write buffer while it flushes the other one to disk, so the buffers take 32 MiB of memory. A buffer
# is full after some 200,000 entries of the index.
WRITE_BUFFER_BYTES = 16 * MEBIBYTE
WRITE_BUFFERS = 2
# The limit of the write-ahead log in bytes. After a kill, RocksDB reads the log when it opens the database; for 64 MiB
# that takes less than a second.
LOG_BYTES = 64 * MEBIBYTE
# The bits of a table's Bloom filter for each key. With 10 bits, of a hundred lookups of keys that a table lacks only
# one reads the table from disk.
BLOOM_BITS = 10


class DamagedError(UnavailableError):
    """The files of a database are damaged, so it has to be built anew."""


class _Translation:
    """A context that raises RocksDB's errors as a DamagedError if files are damaged, else as an UnavailableError."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # rocksdict raises an error of RocksDB as a plain Exception, and an access to a closed database as a
        # DbClosedError. Errors of other classes, such as a TypeError, don't come from RocksDB, so they aren't
        # translated.
        if kind is Exception or kind is DbClosedError:
            if is_damage(text := str(error)):
                raise DamagedError(f"the index is damaged and is about to be built anew: {text}") from error
            raise UnavailableError(f"the index database doesn't do it now: {text}") from error


TRANSLATED = _Translation()


def open_database(path: Path, cache: Cache) -> Rdict:
    """Return the database in the folder `path`, which is created if it doesn't exist.

    Raises `DamagedError` if the database is damaged, `ConflictError` if another process, or a read of this process, has
    it open, and `UnavailableError` if the folder can't be used.
    """
    try:
        # RocksDB syncs the names of its files, but not the name of their folder in the folder above. Unless that is
        # synced here, a power failure could remove the whole database.
        make_lasting_folder(path)
        return Rdict(str(path), database_options(cache))
    except Exception as error:
        text = str(error)
        if is_damage(text):
            raise DamagedError(f"the index database at {path} is damaged: {text}") from error
        if "lock" in text.lower():
            raise ConflictError(f"the index database at {path} is in use by another process ({text})") from error
        raise UnavailableError(f"the index database at {path} can't be opened: {text}") from error


def is_damage(text: str) -> bool:
    """Return whether the text of an error says that files of a database are damaged."""
    gone = "No such file" in text and (".sst" in text or "MANIFEST" in text)
    return text.startswith("Corruption") or "NotFound" in text or gone


def check_end(iterator: RdictIter) -> None:
    """Raise if an iterator ended because it couldn't read an entry, which looks like an ordinary end.

    Raises `DamagedError` if the entry is damaged, and `UnavailableError` if the disk fails.
    """
    if not iterator.valid():
        with TRANSLATED:
            iterator.status()


def scan_database(db: Rdict, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries from `first` up to, not including, `end`, in the state that they have at the first one."""
    options = ReadOptions()
    options.set_iterate_upper_bound(end)
    with TRANSLATED:
        iterator = db.iter(options)
    iterator.seek(first)
    while iterator.valid():
        yield iterator.key(), iterator.value()
        iterator.next()
    check_end(iterator)


def database_options(cache: Cache) -> Options:
    """Return the options of a database whose blocks are cached in `cache`."""
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(8 * 1024)
    table.set_bloom_filter(BLOOM_BITS, block_based=False)
    # The index and filter blocks of the tables are kept in the block cache, whose size is fixed. Outside of it they
    # would take memory that grows with the number of keys.
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
