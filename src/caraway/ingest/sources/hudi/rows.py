"""The rows of file slices of a Hudi table, with numbers that are the same each time."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from caraway.errors import UnavailableError, shortened
from caraway.ingest.sources.hudi.changes import ReadSlice
from caraway.ingest.sources.hudi.tables import META, RECORD_KEY, OpenTable
from caraway.ingest.sources.snapshots.rows import Rows

# The most bytes of the files of a slice that are merged. Its rows are in memory, where they take a multiple of that.
MAX_MERGED_BYTES = 1 << 30
# The most rows of one, which are sorted, and the most bytes that they may have in memory.
MAX_MERGED_ROWS = 5_000_000
MAX_HELD_BYTES = (1 << 31) - 1
# How many rows are handed over at a time.
PIECE_ROWS = 10_000


class OpenSlice:
    """A file slice that is being read.

    The rows of a base file have its order. Those of a merge-on-read table are in the order of their record keys, which
    stays the same when a compaction merges the files of a slice.
    """

    def __init__(self, table: OpenTable, read: ReadSlice, columns: Sequence[str]) -> None:
        self._table = table
        self._read = read
        self._columns = columns
        self.read_bytes = 0
        """How many bytes were read: those of all files, since the library doesn't tell more."""

    def rows(self, first: int) -> Iterator[Rows]:
        """Yield the rows from the number `first` on.

        Raises:
            UnavailableError: A file is gone or can't be read, or the slice is too large to be merged.
        """
        at = 0
        for batch in self._merged() if self._table.is_merged else self._plain():
            self.read_bytes = self._read.size
            for start in range(0, batch.num_rows, PIECE_ROWS):
                piece = batch.slice(start, PIECE_ROWS)
                stop = at + piece.num_rows
                if stop > first:
                    skipped = max(0, first - at)
                    yield Rows(np.arange(at + skipped, stop), piece.slice(skipped))
                at = stop

    def close(self) -> None:
        """Do nothing: the library closes its files."""

    def _plain(self) -> Iterator[Any]:
        for batch in self._table.batches(self._read.part, self._read.at, None):
            yield self._projected(batch, self._columns)

    def _merged(self) -> Iterator[Any]:
        read = self._read
        if read.size > MAX_MERGED_BYTES:
            raise UnavailableError(
                f"{self._table.where}: the files of {read.path} have {read.size:,} bytes, {MAX_MERGED_BYTES:,} can be "
                "merged; compact the table more often, with smaller files (hoodie.parquet.max.file.size)"
            )
        batches: list[Any] = []
        count = held = 0
        for batch in self._table.batches(read.part, read.at, None):
            count, held = count + batch.num_rows, held + batch.nbytes
            if count > MAX_MERGED_ROWS or held > MAX_HELD_BYTES:
                raise UnavailableError(
                    f"{self._table.where}: {read.path} has more than {MAX_MERGED_ROWS:,} rows or {MAX_HELD_BYTES:,} "
                    "bytes of values, which aren't merged; let the writer make smaller files "
                    "(hoodie.parquet.max.file.size)"
                )
            batches.append(batch)
        if not count:
            return
        # Texts of less than 2 GiB are always one chunk.
        (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
        keys = whole.column(RECORD_KEY)
        order = pc.sort_indices(keys)
        if pc.count_distinct(keys).as_py() < count:
            # A writer may insert rows of equal keys, which are told apart by their values.
            names = [name for name in whole.schema.names if not name.startswith(META)]
            values = pa.array(
                # They must stay the same: positions have the numbers of rows.
                [blake2b(text, digest_size=16).digest() for text in _texts(whole.select(names))],
                pa.binary(),
            )
            order = pc.sort_indices(
                pa.table({"key": keys, "value": values}), [("key", "ascending"), ("value", "ascending")]
            )
        yield self._projected(whole.take(order), self._columns)

    def _projected(self, batch: Any, names: Sequence[str]) -> Any:
        """Return some columns of a batch with the types that the table has now; columns that it lacks are null."""
        there = set(batch.schema.names)
        fields = [self._table.schema.field(name) for name in names]
        try:
            columns = [
                batch.column(each.name).cast(each.type) if each.name in there else pa.nulls(batch.num_rows, each.type)
                for each in fields
            ]
        except pa.ArrowException as error:
            reason = shortened(str(error))
            raise UnavailableError(
                f"{self._table.where}: {self._read.path} doesn't fit the columns of the table: {reason}; write the "
                "table anew"
            ) from None
        return pa.RecordBatch.from_arrays(columns, [each.name for each in fields])


def _texts(batch: Any) -> Iterator[bytes]:
    """Yield a text of each row, which is the same whenever the file is read; texts of equal values are equal."""
    columns = [column.to_pylist() for column in batch.columns]
    for values in zip(*columns, strict=True):
        yield repr(values).encode(errors="surrogatepass")
