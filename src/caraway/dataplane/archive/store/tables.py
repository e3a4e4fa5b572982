"""A Delta table with the records of a topic, whose commits have the offsets behind their records.

Each commit that adds records also has an application transaction for each partition that they came from: its version is
the offset of the next message to archive. Delta takes a commit as a whole or not at all, and refuses one whose
transactions another commit has meanwhile. So no record is in the table twice or missing, whoever writes and whenever a
writer dies.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Self
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.writer import write_deltalake

from caraway.dataplane.archive.store.columns import TableColumns, are_erased, columns_of_keys
from caraway.dataplane.archive.store.model import TableSize
from caraway.dataplane.archive.store.storage import table_address
from caraway.dataplane.topics.erased_keys import HidesRecord
from caraway.errors import UnavailableError
from caraway.process.private_files import sync

# The size in bytes of the files into which small files are merged. Larger files would be read no faster, but need more
# memory while they are written.
FILE_BYTES = 64 << 20
# Hours for which a table keeps the entries of its log, and files that were replaced, since readers may still be using
# them.
KEPT_HOURS = 24

# The epoch of a position whose epoch isn't known.
UNKNOWN = -1

_CONFIGURATION = {
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": f"interval {KEPT_HOURS} hours",
    "delta.deletedFileRetentionDuration": f"interval {KEPT_HOURS} hours",
}
# Delta's property with the columns whose least and greatest values are in the table's log. The log has those of no
# other column: they would contain keys in clear text, and stay in the log after the rows are erased.
_STATISTICS = "delta.dataSkippingStatsColumns"
_WRITER = WriterProperties(compression="ZSTD", compression_level=1)
_AFTER_COMMIT = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True)


class ReplacedError(Exception):
    """Another writer has changed the table meanwhile: its offsets are to be read again."""


class ArchiveTable:
    """The table of one topic. Not thread safe.

    All methods raise `UnavailableError` if the object store doesn't answer, or refuses.
    """

    def __init__(self, url: str, options: dict[str, str], table: DeltaTable) -> None:
        """Use a table that is open, with its address and the options with which it was opened."""
        self.url, self._options, self._table = url, options, table

    @classmethod
    def opened(
        cls, objects_url: str, path: str, schema: pa.Schema, *, dataset: str, statistics: Sequence[str] = ()
    ) -> Self:
        """Open the table at `path` of an object store, and create it if it doesn't exist.

        Args:
            objects_url: The setting `objects`: a folder, or the address of a bucket.
            path: See `table_path`.
            schema: The schema of a new table.
            dataset: The name of the dataset, which a new table gets as its own.
            statistics: The columns whose least and greatest values the table's log has; by default Delta chooses.
        """
        url, options = table_address(objects_url, path)
        wanted = {_STATISTICS: ",".join(statistics)} if statistics else {}
        made = False
        with _translated_errors(url):
            try:
                table = DeltaTable(url, storage_options=options)
            except TableNotFoundError:
                made = True
                table = DeltaTable.create(
                    url,
                    schema,
                    mode="ignore",
                    name=dataset,
                    description=f"Records of the Caraway dataset {dataset}.",
                    configuration=_CONFIGURATION | wanted,
                    storage_options=options,
                )
            opened = cls(url, options, table)
            if made and "://" not in url:
                opened._keep(-1)
                for folder in Path(url).parents[: len(PurePath(path).parts) + 1]:
                    with suppress(PermissionError):
                        sync(folder)
            return opened

    @classmethod
    def existing(cls, objects_url: str, path: str) -> Self | None:
        """Return the table at `path` of an object store, None if there is none."""
        url, options = table_address(objects_url, path)
        with _translated_errors(url):
            try:
                return cls(url, options, DeltaTable(url, storage_options=options))
            except TableNotFoundError:
                return None

    def positions(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the offset of the next message to archive of each partition; 0 if none is archived."""
        return {p: self._table.transaction_version(_application(p)) or 0 for p in partitions}

    def epochs(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the epochs in which the messages before the positions were written, where they are known."""
        found = ((p, self._table.transaction_version(_application_of_epoch(p))) for p in partitions)
        return {p: epoch for p, epoch in found if epoch is not None and epoch >= 0}

    def append(self, rows: pa.Table, positions: Mapping[int, int], epochs: Mapping[int, int] | None = None) -> None:
        """Add records, with the offsets behind them, by partition.

        Args:
            rows: The records.
            positions: The offset behind the records of each partition.
            epochs: The epochs in which the messages before these offsets were written, where they are known.

        Raises:
            ReplacedError: Another writer has added records of one of these partitions since the table was opened;
                nothing was added.
        """
        transactions = [Transaction(_application(p), offset) for p, offset in sorted(positions.items())]
        known = epochs or {}
        # If an epoch is unknown, `UNKNOWN` overwrites the earlier epoch, which would be wrong for the new position.
        transactions += [Transaction(_application_of_epoch(p), known.get(p, UNKNOWN)) for p in sorted(positions)]
        with self._committing():
            write_deltalake(
                self._table,
                rows,
                mode="append",
                writer_properties=_WRITER,
                commit_properties=CommitProperties(app_transactions=transactions),
                post_commithook_properties=_AFTER_COMMIT,
            )

    @contextmanager
    def _committing(self) -> Iterator[None]:
        """Translate the errors of a commit, and return when what it wrote is on the disk."""
        before = self._table.version()
        with _translated_errors(self.url):
            yield
            self._keep(before)

    def _keep(self, before: int) -> None:
        """Return when what was committed after a version is on the disk, if the table is in a folder.

        Topics lose their records once a table has them, so a table must survive a power failure by itself. (Writers to
        buckets get an answer when the object is safe.)
        """
        if "://" in self.url:
            return
        folder = Path(self.url)
        log = folder / "_delta_log"
        written = [log / f"{version:020}.json" for version in range(before + 1, self._table.version() + 1)]
        written = [file for file in written if file.exists()]
        actions = [json.loads(line) for file in written for line in file.read_bytes().splitlines()]
        written += [folder / unquote(action["add"]["path"]) for action in actions if "add" in action]
        # A later commit may have replaced and removed a file of an earlier commit, so only the remaining files are
        # synced.
        kept = [file for file in written if file.exists()]
        for path in [*kept, *{file.parent for file in kept}, folder]:
            sync(path)

    def upsert(self, rows: pa.Table, key: Sequence[str]) -> None:
        """Add rows, which have different keys, and replace those that have the same values in the columns of the key.

        Raises:
            ReplacedError: Another writer has changed the same files meanwhile; nothing was changed.
        """
        with self._committing():
            merge = self._table.merge(
                rows, _same(key), source_alias="source", target_alias="target", writer_properties=_WRITER
            )
            merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def refresh(self) -> None:
        """Read the changes of other writers."""
        with _translated_errors(self.url):
            self._table.update_incremental()

    def read(self, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        """Return the records in these columns, in all of them by default, in no particular order.

        If `where` is given, only the records of which it is true are returned.
        """
        with _translated_errors(self.url):
            return self._table.to_pyarrow_dataset().to_table(columns=columns, filter=where)

    def files(self) -> list[tuple[str, int]]:
        """Return the addresses of the table's files, and the number of records in each.

        They stay readable for some hours (KEPT_HOURS), also if they are replaced meanwhile.
        """
        with _translated_errors(self.url):
            found = pa.table(self._table.get_add_actions(flatten=True))
        return [
            (f"{self.url}/{path}", rows)
            for path, rows in zip(found["path"].to_pylist(), found["num_records"].to_pylist(), strict=True)
        ]

    def least_instant(self, column: str) -> int | None:
        """Return the least value of a column of times in microseconds; None if there is none, or it isn't known."""
        with _translated_errors(self.url):
            found = pa.table(self._table.get_add_actions(flatten=True))
        name = f"min.{column}"
        if name not in found.column_names or not found.num_rows or found[name].null_count:
            return None
        least: list[int] = found[name].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
        return min(least)

    def files_within(self, column: str, least: int, greatest: int) -> list[str]:
        """Return the addresses of the files that may have records between two values of a column, both included."""
        with _translated_errors(self.url):
            found = pa.table(self._table.get_add_actions(flatten=True))
        bounds = [
            found[name].to_pylist() if name in found.column_names else [None] * found.num_rows
            for name in (f"min.{column}", f"max.{column}")
        ]
        # A file without statistics may have any values.
        return [
            f"{self.url}/{path}"
            for path, low, high in zip(found["path"].to_pylist(), *bounds, strict=True)
            if low is None or high is None or (low <= greatest and high >= least)
        ]

    def options(self) -> dict[str, str]:
        """Return the options with which the table was opened."""
        return dict(self._options)

    def remove(self, columns: TableColumns, hides: HidesRecord) -> int:
        """Remove the rows that `hides` is true of, and return how many; see `remove_rows`."""
        # If no rows are erased by columns other than the keys, only the keys need to be read.
        read = columns if hides.row is not None else columns_of_keys(columns)

        def hidden(batch: pa.RecordBatch) -> list[bool]:
            return are_erased(batch, read, hides)

        at = (columns.partition, columns.offset, columns.number)
        return self.remove_rows(at, [column.name for column in read.schema.columns], hidden)

    def remove_rows(
        self,
        position: Sequence[str],
        wanted: Sequence[str],
        hidden: Callable[[pa.RecordBatch], list[bool]],
        before: Callable[[pa.Table], object] = lambda _: None,
    ) -> int:
        """Remove rows, and return how many.

        The files that had them are replaced, and removed by `vacuum` once no reader uses them any more.

        Args:
            position: The columns that identify a row.
            wanted: The columns that `hidden` needs besides.
            hidden: Returns which of some rows are to be removed.
            before: Called with the positions of all of these rows before they are removed.
        """
        found = []
        with _translated_errors(self.url):
            for batch in self._table.to_pyarrow_dataset().to_batches(columns=[*position, *wanted]):
                rows = pa.table([batch[name] for name in position], names=list(position))
                found.append(rows.filter(pa.array(hidden(batch), pa.bool_())))
            rows = pa.concat_tables(found) if found else pa.table({})
        if not rows.num_rows:
            return 0
        with self._committing():
            before(rows)
            merge = self._table.merge(
                rows, _same(position), source_alias="source", target_alias="target", writer_properties=_WRITER
            )
            return int(merge.when_matched_delete().execute()["num_target_rows_deleted"])

    def go_back(self, partition: str, offset: str, offsets: Mapping[int, int]) -> int:
        """Remove the rows of some partitions from some offsets on, and return how many.

        Their files stay readable for some hours, in the version of the table before.

        Args:
            partition: The column of partitions.
            offset: The column of offsets.
            offsets: The offsets by partition.
        """
        later = " OR ".join(f'("{partition}" = {p} AND "{offset}" >= {at})' for p, at in sorted(offsets.items()))
        with self._committing():
            return int(self._table.delete(later, writer_properties=_WRITER)["num_deleted_rows"])

    @property
    def version(self) -> int:
        """The version of the table, as last read or written."""
        return int(self._table.version())

    def size(self) -> TableSize:
        """Return the size of the table, as last read or written."""
        with _translated_errors(self.url):
            files = pa.table(self._table.get_add_actions(flatten=True))
        return TableSize(
            rows=sum(files["num_records"].to_pylist()),
            files=len(files),
            bytes=sum(files["size_bytes"].to_pylist()),
        )

    def compact(self) -> int:
        """Make large files of small ones, and return how many files were replaced."""
        with self._committing():
            outcome = self._table.optimize.compact(
                target_size=FILE_BYTES,
                max_concurrent_tasks=1,
                writer_properties=_WRITER,
                post_commithook_properties=_AFTER_COMMIT,
            )
        return int(outcome["numFilesRemoved"])

    def vacuum(self, *, hours: int = KEPT_HOURS) -> int:
        """Remove files that were replaced, or written in vain, `hours` ago; return their number."""
        with _translated_errors(self.url):
            return len(
                self._table.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True)
            )


@contextmanager
def _translated_errors(url: str) -> Iterator[None]:
    try:
        yield
    except CommitFailedError as error:
        raise ReplacedError(str(error)) from error
    except (DeltaError, OSError) as error:
        raise UnavailableError(f"the archive can't use the table {url}: {error}") from error


def _same(key: Sequence[str]) -> str:
    return " AND ".join(f'target."{name}" = source."{name}"' for name in key)


def _application_of_epoch(partition: int) -> str:
    return f"caraway/{partition}/epoch"


def _application(partition: int) -> str:
    return f"caraway/{partition}"
