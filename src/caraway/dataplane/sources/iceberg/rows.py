"""The rows of data files of an Iceberg table, under the names that the columns have now.

Columns are known by the ids that their fields have in the table and in each file, so a column that was renamed, added,
dropped or widened since a file was written is read as the table has it now.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import ArrowAccessor, ArrowProjectionVisitor, pyarrow_to_schema
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, prune_columns, visit_with_partner
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import UUIDType

from caraway.dataplane.sources.files.decoders import ABOUT_CONTENT, Decoding, decoder_of
from caraway.dataplane.sources.files.stored import StoreFile, VanishedError
from caraway.dataplane.sources.iceberg.changes import ReadFile
from caraway.dataplane.sources.iceberg.tables import IcebergTables
from caraway.dataplane.sources.snapshots.rows import BEGIN_ANEW, Rows
from caraway.errors import UnavailableError, shortened

DECODE = decoder_of("parquet")


class OpenFile:
    """A data file that is being read."""

    def __init__(self, tables: IcebergTables, table: Table, read: ReadFile, columns: Schema) -> None:
        self._tables = tables
        self._table = table
        self._read = read
        self._columns = columns
        self._only = None if read.only is None else _array(read.only)
        self._without = _array(read.without)
        self._opened: StoreFile | None = None

    @property
    def read_bytes(self) -> int:
        """How many bytes were read."""
        return 0 if self._opened is None else self._opened.read_bytes

    def rows(self, first: int) -> Iterator[Rows]:
        """Yield the rows that count, from the number `first` on.

        Raises:
            UnavailableError: The file is gone, or can't be read.
        """
        file = self._read.file
        try:
            for rows in self._decoded(file, first):
                mask = np.ones(len(rows.numbers), bool)
                if self._only is not None:
                    mask &= np.isin(rows.numbers, self._only)
                if len(self._without):
                    mask &= ~np.isin(rows.numbers, self._without)
                found = rows.chosen(mask)
                if len(found.numbers):
                    yield found
        except VanishedError:
            raise UnavailableError(
                f"{self._tables.where}: {file.file_path} is gone, as its snapshot has expired before it was read; "
                f"{BEGIN_ANEW}"
            ) from None
        except (*ABOUT_CONTENT, ValueError, NotImplementedError) as error:
            if isinstance(error, UnavailableError):
                raise
            text = shortened(str(error).partition("\n")[0])
            raise UnavailableError(f"{self._tables.where}: {file.file_path} can't be read: {text}") from None

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened.close()

    def _decoded(self, file: DataFile, first: int) -> Iterator[Rows]:
        opened = self._opened = self._tables.open(file.file_path)
        physical = pq.ParquetFile(pa.PythonFile(opened, mode="r")).schema_arrow
        mapping = self._table.metadata.name_mapping()
        stored = pyarrow_to_schema(physical, mapping, downcast_ns_timestamp_to_us=True)
        kept = prune_columns(stored, self._columns.field_ids, select_full_types=False)
        names = [field.name for field in kept.fields]
        # If the file has none of the wanted columns, one of the others is read for the number of rows.
        how = Decoding(columns=frozenset(names or physical.names[:1]))
        constants = self._constants(file, stored)
        for piece in DECODE(file.file_path, opened, first, how):
            numbers = np.arange(piece.first, piece.first + len(piece))
            yield Rows(numbers, self._projected(piece.rows, kept, constants))

    def _projected(self, batch: Any, stored: Schema, constants: dict[int, Any]) -> Any:
        if not self._columns.fields:
            return batch.select([])
        visitor = ArrowProjectionVisitor(
            stored,
            downcast_ns_timestamp_to_us=True,
            projected_missing_fields=constants,
            allow_timestamp_tz_mismatch=True,
        )
        found: Any = pa.RecordBatch.from_struct_array(
            visit_with_partner(self._columns, batch, visitor, ArrowAccessor(stored))
        )
        for at, field in enumerate(self._columns.fields):
            if isinstance(field.field_type, UUIDType):
                texts = [None if value is None else str(value) for value in found.column(at).to_pylist()]
                found = found.set_column(at, field.name, pa.array(texts, pa.string()))
        return found

    def _constants(self, file: DataFile, stored: Schema) -> dict[int, Any]:
        """Return the values of the columns that are only in the partition of the file, by the ids of the fields."""
        spec = self._table.metadata.specs().get(file.spec_id)
        if spec is None:
            return {}
        return {
            field.source_id: file.partition[at]
            for at, field in enumerate(spec.fields)
            if isinstance(field.transform, IdentityTransform) and field.source_id not in stored.field_ids
        }


def needed(table: Table, names: "frozenset[str] | None", where: str) -> Schema:
    """Return the columns of a table that are read, as the table has them now. Raises `UnavailableError` without any."""
    schema = table.metadata.schema()
    if names is None:
        return schema
    chosen = [field.name for field in schema.fields if field.name in names]
    if not chosen:
        raise UnavailableError(f"{where} has none of the columns {', '.join(sorted(names))}")
    return schema.select(*chosen)


def _array(numbers: frozenset[int]) -> Any:
    return np.fromiter(numbers, np.int64, len(numbers))
