"""A folder of the locked jars: missing jars are fetched, and each jar is compared with its digest once."""

import fcntl
import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from caraway.dataplane.streams.java.errors import JarsError
from caraway.dataplane.streams.java.ivy import Progress, fetch
from caraway.dataplane.streams.java.lock import MAVEN_CENTRAL, Jar


def verified(
    folder: Path, jars: tuple[Jar, ...], ivy_settings: Path | None = None, on_progress: Progress | None = None
) -> tuple[Path, ...]:
    """Return the files of `jars` in `folder`; fetch and check those that aren't there.

    The file `ivy_settings` of Ivy names the repositories; None means Maven Central.

    Raises:
        JarsError: A jar can't be fetched or differs from its digest; the message names it.
        JavaMissingError: Jars must be fetched, and there is no Java for that.
    """
    if not _is_verified(folder, jars):
        with _locked(folder):
            # Another process may have fetched the jars while this one waited for the lock.
            if not _is_verified(folder, jars):
                _complete(folder, jars, ivy_settings or MAVEN_CENTRAL, on_progress or (lambda *_: None))
    return tuple(folder / jar.file_name for jar in jars)


def _complete(folder: Path, jars: tuple[Jar, ...], ivy_settings: Path, on_progress: Progress) -> None:
    missing = [jar for jar in jars if _digest(folder / jar.file_name) != jar.sha256]
    if missing:
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as scratch:
            fetched = fetch(missing, Path(scratch), ivy_settings, on_progress)
            wrong = [jar for jar in missing if _digest(fetched / jar.file_name) != jar.sha256]
            if wrong:
                raise JarsError(_refusal(wrong, fetched, ivy_settings))
            for jar in missing:
                (fetched / jar.file_name).replace(folder / jar.file_name)
    _stamp(folder, jars).write_text(json.dumps(_states(folder, jars)))


def _refusal(wrong: list[Jar], fetched: Path, ivy_settings: Path) -> str:
    lines = ["Java libraries came with other bytes than the lock file says, and are not used:"]
    lines += [
        f"  {jar.file_name}: expected SHA-256 {jar.sha256}, got {_digest(fetched / jar.file_name)}" for jar in wrong
    ]
    lines.append(f"Ask whoever runs the repository that {ivy_settings} names, or try again later.")
    return "\n".join(lines)


def _is_verified(folder: Path, jars: tuple[Jar, ...]) -> bool:
    # The sizes and dates of the files are compared with those noted when the digests were checked. Hashing 45 MB at
    # every start would take more than 0.1 s.
    try:
        return bool(json.loads(_stamp(folder, jars).read_text()) == _states(folder, jars))
    except (OSError, ValueError):
        return False


def _stamp(folder: Path, jars: tuple[Jar, ...]) -> Path:
    digests = "\n".join(f"{jar.sha256}  {jar.file_name}" for jar in jars)
    return folder / f"verified-{hashlib.sha256(digests.encode()).hexdigest()[:12]}.json"


def _states(folder: Path, jars: tuple[Jar, ...]) -> dict[str, list[int]]:
    stats = {jar.file_name: (folder / jar.file_name).stat() for jar in jars}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def _digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise JarsError(
            f"The cache of Java libraries can't be written: {error}.\nSet CARAWAY_CACHE_DIR to a folder of yours."
        ) from error
