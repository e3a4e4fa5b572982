"""Sorted tables: files of RocksDB that one process writes, and that the database of another one takes as they are."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from rocksdict import Cache, SstFileWriter

from caraway.dataplane.index.storage.database import MEBIBYTE, TRANSLATED, database_options

# A table ends after so many bytes of keys and values. Its file is smaller, since it is compressed. The database opens
# each table while it takes it, which stops the process for 1 to 20 ms a table, so tables shouldn't be small.
TABLE_BYTES = 512 * MEBIBYTE
# A writer of tables reads nothing, so it needs no cache worth the name.
_CACHE_BYTES = MEBIBYTE


def write_table(path: Path, entries: Iterable[tuple[bytes, bytes]]) -> None:
    """Write entries, in ascending order of their keys, as a table. There must be at least one."""
    with TRANSLATED:
        writer = SstFileWriter(database_options(Cache(_CACHE_BYTES)))
        writer.open(str(path))
        for key, value in entries:
            writer[key] = value
        writer.finish()


def write_tables(folder: Path, entries: Iterable[tuple[bytes, bytes]], most_bytes: int = TABLE_BYTES) -> Iterator[Path]:
    """Write entries, in ascending order of their keys, as tables that follow each other; yield each when it is written.

    Args:
        folder: The folder of the tables.
        entries: The entries.
        most_bytes: The bytes of keys and values after which a table ends.
    """
    left = iter(entries)
    number = 0
    while (first := next(left, None)) is not None:
        path = folder / f"{number}.sst"
        write_table(path, _some(first, left, most_bytes))
        yield path
        number += 1


def _some(
    first: tuple[bytes, bytes], left: Iterator[tuple[bytes, bytes]], most_bytes: int
) -> Iterator[tuple[bytes, bytes]]:
    yield first
    size = len(first[0]) + len(first[1])
    while size < most_bytes and (entry := next(left, None)) is not None:
        size += len(entry[0]) + len(entry[1])
        yield entry
