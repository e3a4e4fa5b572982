"""The changes of each snapshot of an Iceberg table: the data files that it added and removed, and rows of others.

A snapshot that adds files only, or rewrites them to new ones (copy-on-write), names them in its manifests. If rows are
marked as deleted instead (merge-on-read), by position deletes or deletion vectors, the snapshot is compared with its
parent.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.table.snapshots import Operation, Snapshot

from caraway.dataplane.objects.iceberg import translated_errors
from caraway.dataplane.sources.files.stored import VanishedError
from caraway.dataplane.sources.iceberg.tables import IcebergTables
from caraway.dataplane.sources.snapshots.rows import BEGIN_ANEW
from caraway.errors import UnavailableError

# The most data files of a snapshot. The reader remembers about a kilobyte of each.
MAX_FILES = 1_000_000
# The most deleted positions of one data file.
MAX_POSITIONS = 50_000_000
NO_ROWS: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A data file that is read.

    Attributes:
        file: The file.
        is_gone: True if its rows are removed by the snapshot, and not added.
        without: The numbers of rows that don't count.
        only: The numbers of the rows that count; None if all others do.
    """

    file: DataFile
    is_gone: bool = False
    without: frozenset[int] = NO_ROWS
    only: frozenset[int] | None = None

    @property
    def size(self) -> int:
        """The bytes of the file."""
        return self.file.file_size_in_bytes


def history(table: Table, done: int | None, sequence: int, where: str) -> list[Snapshot]:
    """Return the snapshots behind one that was read, the oldest one first.

    Args:
        table: The table.
        done: The snapshot that was read last; None if the table had none then.
        sequence: The sequence number of that snapshot.
        where: The table, for people.

    Raises:
        UnavailableError: Snapshots in between are gone, or the table was rolled back.
    """
    found: list[Snapshot] = []
    snapshot = table.metadata.current_snapshot()
    if snapshot is None and done is not None:
        raise UnavailableError(f"{where} has no rows any more: it was made anew or rolled back; {BEGIN_ANEW}")
    while snapshot is not None and snapshot.snapshot_id != done:
        found.append(snapshot)
        parent = snapshot.parent_snapshot_id
        # Some writers forget the parent when it expires. The snapshot that follows has the next sequence number.
        if parent == done or (parent is None and 0 < sequence == (snapshot.sequence_number or 0) - 1):
            break
        snapshot = None if parent is None else table.metadata.snapshot_by_id(parent)
        if snapshot is None:
            raise UnavailableError(
                f"{where}: the snapshot {done or 'without rows'}, which was read last, isn't in the history of the "
                "table any more: snapshots have expired that weren't read yet, or the table was replaced or rolled "
                f"back; keep snapshots for longer (history.expire.max-snapshot-age-ms), and {BEGIN_ANEW}"
            )
    return found[::-1]


def commits(table: Table, snapshots: Sequence[Snapshot]) -> list[list[Snapshot]]:
    """Return snapshots by the commits that have made them.

    A writer that replaces rows may delete the old ones in one snapshot, and add the new ones in the next, both of them
    in one commit. Read one by one, the new rows would be older than the deletes. A snapshot with which a commit ended
    was the newest one in some metadata of the table, the times of which are in the table's log of metadata.
    """
    metadata = table.metadata
    times = sorted({*(entry.timestamp_ms for entry in metadata.metadata_log), metadata.last_updated_ms})
    newest = {entry.snapshot_id for entry in metadata.snapshot_log}
    found: list[list[Snapshot]] = []
    is_over = True
    for at, snapshot in enumerate(snapshots):
        if is_over:
            found.append([])
        found[-1].append(snapshot)
        following = snapshots[at + 1].timestamp_ms if at + 1 < len(snapshots) else snapshot.timestamp_ms
        if snapshot.snapshot_id not in newest:
            is_over = False
        elif snapshot.timestamp_ms < times[0]:
            # The log of metadata doesn't reach back to this snapshot, so it can't tell where the commit ends. A
            # snapshot that only deletes is taken for the beginning of a commit that goes on.
            is_over = _operation(snapshot) is not Operation.DELETE
        else:
            ended = bisect_left(times, snapshot.timestamp_ms)
            is_over = ended < len(times) and times[ended] < following
    return found


def _operation(snapshot: Snapshot) -> Operation | None:
    return None if snapshot.summary is None else snapshot.summary.operation


def live(tables: IcebergTables, table: Table, snapshot: Snapshot) -> list[ReadFile]:
    """Return the files that have the rows of a snapshot, in an order that never changes."""
    with translated_errors(tables.where), _files_there(tables.where, snapshot):
        manifests = snapshot.manifests(table.io)
        if any(manifest.content is ManifestContent.DELETES for manifest in manifests):
            found = _with_deletes(tables, table, snapshot)
            read = [ReadFile(file, without=_positions(tables, file, deletes)) for file, deletes in found.values()]
        else:
            read = [
                ReadFile(entry.data_file)
                for manifest in manifests
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            ]
    return _in_order(tables, read)


def changes(tables: IcebergTables, table: Table, commit: Sequence[Snapshot], *, is_root: bool) -> list[ReadFile]:
    """Return the files of the rows that a commit has removed, and then those of the rows that it has added.

    Args:
        tables: Opens files.
        table: The table.
        commit: The snapshots of the commit.
        is_root: True if there was no snapshot before them.
    """
    first, last = commit[0], commit[-1]
    # A replacement only writes the same rows to other files, for instance to larger ones, so it is left out.
    snapshots = [snapshot for snapshot in commit if _operation(snapshot) is not Operation.REPLACE]
    gone: dict[str, ReadFile] = {}
    there: dict[str, ReadFile] = {}
    for snapshot in snapshots:
        with translated_errors(tables.where), _files_there(tables.where, snapshot):
            read = _named(table, snapshot)
            if read is None:
                if is_root:
                    return live(tables, table, last)
                return _in_order(tables, list(_compared(tables, table, first.parent_snapshot_id, last)))
        for each in read:
            path = each.file.file_path
            if not each.is_gone:
                there[path] = each
            elif there.pop(path, None) is None:
                gone[path] = each
    return _in_order(tables, [*gone.values(), *there.values()])


def _named(table: Table, snapshot: Snapshot) -> list[ReadFile] | None:
    """Return the files that a snapshot has removed and added; None if its manifests alone don't tell that."""
    manifests = snapshot.manifests(table.io)
    is_new = [manifest.added_snapshot_id == snapshot.snapshot_id for manifest in manifests]
    of_deletes = [manifest.content is ManifestContent.DELETES for manifest in manifests]
    if any(map(all, zip(is_new, of_deletes, strict=True))):
        return None
    if any(of_deletes) and _operation(snapshot) is not Operation.APPEND:
        return None
    kinds = {ManifestEntryStatus.ADDED: False, ManifestEntryStatus.DELETED: True}
    read = [
        ReadFile(entry.data_file, is_gone=kinds[entry.status])
        for manifest, new in zip(manifests, is_new, strict=True)
        if new
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        if entry.status in kinds
    ]
    # If the numbers of files aren't those of the summary, the writer has left files out of its manifests, or its
    # manifests still have entries of earlier snapshots.
    return read if _is_complete(snapshot, read) else None


def _is_complete(snapshot: Snapshot, read: Sequence[ReadFile]) -> bool:
    """Return whether as many files were found as the summary of the snapshot says, as far as it does."""
    summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
    for name, is_gone in (("added-data-files", False), ("deleted-data-files", True)):
        if int(summary.get(name, 0)) != sum(each.is_gone == is_gone for each in read) and len(summary):
            return False
    return True


def _compared(tables: IcebergTables, table: Table, parent: int | None, snapshot: Snapshot) -> Iterator[ReadFile]:
    """Yield the files with rows that aren't in both of a snapshot and an earlier one."""
    before = None if parent is None else table.metadata.snapshot_by_id(parent)
    if before is None:
        raise UnavailableError(
            f"{tables.where}: the snapshot before {snapshot.snapshot_id} has expired, without which it can't be told "
            f"what this one has deleted; {BEGIN_ANEW}"
        )
    old, new = _with_deletes(tables, table, before), _with_deletes(tables, table, snapshot)
    for path, (file, deletes) in old.items():
        if path not in new:
            yield ReadFile(file, is_gone=True, without=_positions(tables, file, deletes))
    for path, (file, deletes) in new.items():
        if path not in old:
            yield ReadFile(file, without=_positions(tables, file, deletes))
        elif _paths(deletes) != _paths(old[path][1]):
            was, now = (_positions(tables, file, each) for each in (old[path][1], deletes))
            if now - was:
                yield ReadFile(file, is_gone=True, only=now - was)
            if was - now:
                yield ReadFile(file, only=was - now)


def _paths(deletes: Sequence[DataFile]) -> set[str]:
    return {file.file_path for file in deletes}


def _with_deletes(
    tables: IcebergTables, table: Table, snapshot: Snapshot
) -> Mapping[str, tuple[DataFile, Sequence[DataFile]]]:
    """Return the data files of a snapshot by path, with the files that have deletes of their rows."""
    for manifest in snapshot.manifests(table.io):
        if manifest.content is ManifestContent.DELETES:
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                if entry.data_file.content is DataFileContent.EQUALITY_DELETES:
                    raise UnavailableError(
                        f"{tables.where}, snapshot {snapshot.snapshot_id} has equality deletes, which can't be read; "
                        "let the writer make position deletes or rewrite files (copy-on-write), compact the table "
                        f"(CALL system.rewrite_data_files), and {BEGIN_ANEW}"
                    )
    tasks = table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
    return {
        task.file.file_path: (task.file, sorted(task.delete_files, key=lambda file: file.file_path)) for task in tasks
    }


def _positions(tables: IcebergTables, file: DataFile, deletes: Sequence[DataFile]) -> frozenset[int]:
    """Return the numbers of the rows of a file that some deletes remove."""
    found: set[int] = set()
    for each in deletes:
        with tables.open(each.file_path) as opened:
            match each.file_format:
                case FileFormat.PUFFIN:
                    for vector in deletion_vectors_from_puffin_file(PuffinFile(opened.read())):
                        if vector.referenced_data_file == file.file_path:
                            found.update(vector.to_vector().to_pylist())
                case FileFormat.PARQUET:
                    rows: Any = pq.read_table(
                        opened, columns=["pos"], filters=[("file_path", "=", file.file_path)], use_threads=False
                    )
                    found.update(rows.column("pos").to_pylist())
                case other:
                    raise UnavailableError(
                        f"{tables.where}: deletes in {other.name} can't be read; compact the table, and {BEGIN_ANEW}"
                    )
        if len(found) > MAX_POSITIONS:
            raise UnavailableError(
                f"{tables.where}: more than {MAX_POSITIONS:,} rows of {file.file_path} are deleted; compact the table"
            )
    return frozenset(found)


def _in_order(tables: IcebergTables, files: Sequence[ReadFile]) -> list[ReadFile]:
    if len(files) > MAX_FILES:
        raise UnavailableError(f"{tables.where} has more than {MAX_FILES:,} data files; compact the table")
    for each in files:
        if each.file.file_format is not FileFormat.PARQUET:
            raise UnavailableError(
                f"{tables.where}: {each.file.file_path} is in {each.file.file_format.name}; only Parquet is read: set "
                "write.format.default to parquet, and rewrite the table"
            )
    return sorted(files, key=lambda each: (not each.is_gone, each.file.file_path))


@contextmanager
def _files_there(where: str, snapshot: Snapshot) -> Iterator[None]:
    """Raise an error about a file of a snapshot that is gone."""
    try:
        yield
    except VanishedError as error:
        raise UnavailableError(
            f"{where}: {error} of the snapshot {snapshot.snapshot_id} is gone, as the snapshot has expired; "
            f"{BEGIN_ANEW}"
        ) from None
