"""The file groups whose rows an instant of a Hudi table has changed, before it and after it.

A commit names the files that it has written, and the file groups that it has replaced. The rows of a group are those of
its file slice: a base file, and the log files that are merged with it. The slices as of the instant and as of the one
before it are compared with what the commit says, so that files that the cleaner has removed are noticed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from caraway.errors import UnavailableError
from caraway.ingest.sources.hudi.tables import OpenTable
from caraway.ingest.sources.snapshots.rows import BEGIN_ANEW

# The operations that put the same rows into other files.
UNCHANGED = frozenset({"COMPACT", "LOG_COMPACT", "CLUSTER"})
Group = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ReadSlice:
    """A file slice that is read.

    Attributes:
        part: The file slice, as the library has it.
        at: The instant as of which its rows are read.
        is_gone: True if its rows are removed by the instant, and not added.
    """

    part: Any
    at: str
    is_gone: bool = False

    @property
    def path(self) -> str:
        """The path of its base file below the table."""
        return str(self.part.base_file_relative_path())

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return int(self.part.total_size_bytes())


def live(table: OpenTable, at: str) -> list[ReadSlice]:
    """Return the slices that have the rows as of an instant, in an order that never changes."""
    found = table.slices(at)
    return [ReadSlice(found[group], at) for group in sorted(found)]


def digest(table: OpenTable, slices: Sequence[ReadSlice]) -> str:
    """Return a digest of the slices of an instant, which changes if the cleaner removes one of them.

    Files of a merge-on-read table may be merged to new ones with the same rows, so only the file groups count.
    """
    groups = (
        (each.part.partition_path, each.part.file_id, "" if table.is_merged else each.part.base_file_name)
        for each in slices
    )
    return blake2b(repr(list(groups)).encode(), digest_size=12).hexdigest()


def changes(table: OpenTable, at: str, before: str) -> list[ReadSlice]:
    """Return the slices of the rows that an instant has removed, and then those of the rows that it has added.

    Args:
        table: The table.
        at: The instant.
        before: The instant before it.

    Raises:
        UnavailableError: The cleaner has removed files of them.
    """
    metadata = table.metadata(at)
    if metadata.get("compacted") or metadata.get("operationType") in UNCHANGED:
        return []
    written = dict(_written(metadata))
    replaced = {
        (partition, str(group))
        for partition, groups in (metadata.get("partitionToReplaceFileIds") or {}).items()
        for group in groups or ()
    }
    new, old = table.slices(at), table.slices(before)
    gone: list[Group] = []
    for group in sorted(written.keys() | replaced):
        files = written.get(group, ())
        if not _is_whole(files, old.get(group), new.get(group), is_replaced=group in replaced):
            raise UnavailableError(
                f"{table.where}: files of the group {group[1]} that the instant {at} has changed are gone, since the "
                "cleaner has removed them before they were read; keep them for longer "
                f"(hoodie.cleaner.commits.retained), and {BEGIN_ANEW}"
            )
        if group in old:
            gone.append(group)
    removed = [ReadSlice(old[group], before, is_gone=True) for group in gone]
    return removed + [ReadSlice(new[group], at) for group in sorted(written) if group in new]


@dataclass(frozen=True, slots=True)
class _File:
    """A file that a commit has written: its name, and the instant of the base file before it, if there was one."""

    name: str
    previous: str | None


def _written(metadata: Mapping[str, Any]) -> Iterator[tuple[Group, list[_File]]]:
    found: dict[Group, list[_File]] = {}
    for partition, files in (metadata.get("partitionToWriteStats") or {}).items():
        for each in files:
            if path := each.get("path"):
                previous = each.get("prevCommit")
                name = path.rpartition("/")[2]
                file = _File(name, None if previous in {None, "", "null"} else previous)
                found.setdefault((partition, each["fileId"]), []).append(file)
    yield from found.items()


def _is_whole(files: Sequence[_File], old: Any, new: Any, *, is_replaced: bool) -> bool:
    """Return whether all files of a group are there, before a commit and after it."""
    if is_replaced and old is None:
        return False
    for file in files:
        if new is None or file.name not in {new.base_file_name, *new.log_file_names}:
            return False
        if file.name != new.base_file_name:
            # A log file belongs to the base file that was there before.
            is_known = old is not None and old.base_file_name == new.base_file_name
        else:
            is_known = file.previous is None or (old is not None and old.creation_instant_time == file.previous)
        if not is_known:
            return False
    return True
