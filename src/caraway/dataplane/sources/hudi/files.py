"""The data files of a Hudi table as of an instant, those that an instant has written, and their rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from caraway.dataplane.sources.files.decoders import ABOUT_CONTENT, Decoding, decoder_of
from caraway.dataplane.sources.files.stored import StoreFile, VanishedError
from caraway.dataplane.sources.hudi.tables import OpenTable
from caraway.dataplane.sources.snapshots.rows import BEGIN_ANEW, Rows
from caraway.errors import UnavailableError, shortened

# The column that Hudi adds with the instant that has written a row.
COMMIT_TIME = "_hoodie_commit_time"
DECODE = decoder_of("parquet")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that is read.

    Attributes:
        path: Its path below the table.
        size: Its bytes.
        only: The instant whose rows are read, since the file has those of earlier ones, too; None for all rows.
    """

    path: str
    size: int
    only: str | None = None

    @property
    def is_gone(self) -> bool:
        """False, as no source reads rows that are removed."""
        return False


def live(table: OpenTable, at: str) -> list[DataFile]:
    """Return the files that have the rows as of an instant, in an order that never changes."""
    files = [DataFile(_base(table, each.base_file_relative_path()), each.base_file_size) for each in table.slices(at)]
    return sorted(files, key=lambda file: file.path)


def digest(files: Sequence[DataFile]) -> str:
    """Return a digest of the files as of an instant, which changes if the cleaner removes one of them.

    The library then shows an older file of the group, or none, without an error.
    """
    return blake2b(repr([file.path for file in files]).encode(), digest_size=12).hexdigest()


def written(table: OpenTable, at: str) -> list[DataFile]:
    """Return the files with the rows that an instant has written, by its own metadata.

    Raises:
        UnavailableError: It has removed rows, or has written log files.
    """
    metadata = table.metadata(at)
    if metadata.get("operationType") == "CLUSTER":
        # A clustering only writes the same rows to other files.
        return []
    stats = [each for some in (metadata.get("partitionToWriteStats") or {}).values() for each in some]
    if any((metadata.get("partitionToReplaceFileIds") or {}).values()) or any(each.get("numDeletes") for each in stats):
        raise UnavailableError(
            f"{table.where}: the instant {at} ({metadata.get('operationType')}) removes rows, which isn't read; let a "
            f"column tell that a row is gone instead of removing it, and {BEGIN_ANEW}"
        )
    files = [DataFile(_base(table, each["path"]), each["fileSizeInBytes"], at) for each in stats if each.get("path")]
    return sorted(files, key=lambda file: file.path)


def _base(table: OpenTable, path: str) -> str:
    if not path.endswith(".parquet"):
        raise UnavailableError(
            f"{table.where}: {path or 'a file group'} has changes in log files, as merge-on-read makes them, which "
            "aren't read; write a table with hoodie.table.type=COPY_ON_WRITE, and read that one"
        )
    return path


class OpenFile:
    """A data file that is being read. Its rows have the order of the file."""

    def __init__(self, table: OpenTable, file: DataFile, columns: Sequence[str]) -> None:
        self._table = table
        self._file = file
        self._columns = columns
        self._opened: StoreFile | None = None

    @property
    def read_bytes(self) -> int:
        """How many bytes were read."""
        return 0 if self._opened is None else self._opened.read_bytes

    def rows(self, first: int) -> Iterator[Rows]:
        """Yield the rows from the number `first` on.

        Raises:
            UnavailableError: The file is gone or can't be read.
        """
        file, table = self._file, self._table
        path = f"{table.folder.root}/{file.path}"
        table.folder.check_inside(path)
        # If the file has none of the other columns, the column of instants gives the number of rows.
        columns = frozenset({*self._columns, COMMIT_TIME})
        try:
            self._opened = table.folder.store.open(path)
            for piece in DECODE(path, self._opened, first, Decoding(columns=columns)):
                rows = Rows(np.arange(piece.first, piece.first + len(piece)), piece.rows)
                if file.only is not None:
                    rows = rows.chosen(np.asarray(pc.equal(rows.batch.column(COMMIT_TIME), file.only)))
                if len(rows.numbers):
                    yield Rows(rows.numbers, self._projected(rows.batch))
        except VanishedError:
            raise UnavailableError(
                f"{table.where}: the cleaner has removed {file.path} before it was read; keep files for longer "
                f"(hoodie.cleaner.commits.retained), and {BEGIN_ANEW}"
            ) from None
        except ABOUT_CONTENT as error:
            raise UnavailableError(f"{table.where}: {file.path} can't be read: {shortened(str(error))}") from None

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened.close()

    def _projected(self, batch: Any) -> Any:
        """Return the columns with the types that the table has now; columns that the file lacks are null."""
        there = set(batch.schema.names)
        fields = [self._table.schema.field(name) for name in self._columns]
        columns = [
            batch.column(each.name).cast(each.type) if each.name in there else pa.nulls(len(batch), each.type)
            for each in fields
        ]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
