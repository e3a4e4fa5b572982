"""The listing of a store: the files whose paths match a template, folder by folder."""

from collections.abc import Iterator
from dataclasses import dataclass

from caraway.dataplane.sources.files.stored import FileStore, StoredFile, VanishedError
from caraway.dataplane.sources.files.templates import Interval, Template, Wanted


@dataclass(frozen=True, slots=True)
class Listed:
    """A file that is read, with the interval that its path names."""

    file: StoredFile
    interval: Interval | None


def list_files(store: FileStore, prefix: str, template: Template, wanted: Wanted) -> Iterator[Listed]:
    """Yield the files below a prefix that match a template and may have rows of the wanted times.

    Folders that can't have such files aren't listed at all. Files and folders whose names begin with a dot or an
    underscore are left out, as Hadoop and Spark do with the files that they are still writing, unless the template
    names them; an underscore is no sign in a partition such as `_day=1`.
    """
    base, _, beginning = prefix.rpartition("/")
    behind = len(base) + 1 if base else 0
    pending = [base]
    while pending:
        folder = pending.pop()
        try:
            files, folders = store.listed(folder)
        except VanishedError:
            continue
        for file in files:
            if not file.path.startswith(prefix):
                continue
            parts = _parts(file.path, prefix, beginning, behind)
            if _is_hidden(parts, template):
                continue
            found = template.match(parts)
            if found is not None and wanted.may_have(found.interval) and store.is_inside(file.path):
                yield Listed(file, found.interval)
        for name in folders:
            path = f"{folder}/{name}" if folder else name
            if not f"{path}/".startswith(prefix) or store.is_link(path):
                continue
            parts = _parts(path, prefix, beginning, behind)
            if not _is_hidden(parts, template) and template.may_lead(parts, wanted):
                pending.append(path)


def _parts(path: str, prefix: str, beginning: str, behind: int) -> list[str]:
    """Return the segments of a path behind the prefix.

    A prefix may end inside of a segment, whose rest is then the first segment behind it.
    """
    parts = path[behind:].split("/")
    if beginning and path.startswith(prefix):
        parts[0] = parts[0].removeprefix(beginning)
    return parts


def _is_hidden(parts: list[str], template: Template) -> bool:
    name = parts[-1]
    return name.startswith((".", "_")) and "=" not in name and not template.is_named(parts)
