"""Log files of supervised processes: bounded in size and number, and quoted when something fails."""

import shutil
from pathlib import Path

# A log of this size is moved to another file and begins anew. The size is enough for days of warnings. With `KEPT`
# former files of each log, the logs of a stack's five parts take at most some 400 MiB.
LIMIT_BYTES = 16 * 1024 * 1024
# The number of former files of each log. With these, the reason of a failure is still there after a few more starts.
KEPT = 4


def rotate(path: Path, limit: int = LIMIT_BYTES) -> bool:
    """Move the content of a log to `<name>.1` if it is larger than `limit`; return whether it was moved.

    The former `<name>.1` becomes `<name>.2`, and so on; the oldest is deleted. The content is copied and the file
    emptied, since the process that writes it keeps it open, in append mode. If the disk has no room for the copy, all
    logs stay as they are.
    """
    if not path.is_file() or path.stat().st_size <= limit:
        return False
    copy = path.with_name(f"{path.name}.copy")
    try:
        copy.touch(mode=0o600)
        shutil.copyfile(path, copy)
    except OSError:
        copy.unlink(missing_ok=True)
        return False
    _make_room(path)
    copy.replace(_former(path, 1))
    with path.open("r+b") as file:
        file.truncate(0)
    return True


def begin_anew(path: Path) -> None:
    """Move a log that no process writes to `<name>.1`, as `rotate` does, unless it is empty."""
    if path.is_file() and path.stat().st_size:
        _make_room(path)
        path.replace(_former(path, 1))


def _make_room(path: Path) -> None:
    for number in range(KEPT - 1, 0, -1):
        former = _former(path, number)
        if former.exists():
            former.replace(_former(path, number + 1))


def _former(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def last_lines(path: Path, count: int = 12) -> list[str]:
    """Return the last lines of a log that aren't blank, or none if there is no log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 64 * 1024))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line.rstrip() for line in lines if line.strip()][-count:]


def quote(path: Path, count: int = 12) -> str:
    """Return the last lines for use in a message, indented, with the path of the whole log."""
    lines = last_lines(path, count) or ["(nothing was written)"]
    return "\n".join([*(f"  {line}" for line in lines), f"All of it: {path}"])
