"""A folder whose plug can be pulled: what no program has synced is gone, as after a power failure."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services.debian import NotInstalledError, cache, libraries, unpack
from tests.tiers import missing
from tests.timeouts import deadline_in, scaled

_PROGRAM = Path(__file__).with_name("unsynced_fs.py")


class Power:
    """The power of a folder."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self._process = process
        self._folder = folder

    def cut(self, share: float = 0.0, seed: int = 0) -> None:
        """Drop what isn't synced, but for a share of the pages and names, which the system had written by itself.

        The folder is an ordinary one afterwards; nothing may run in it meanwhile.
        """
        if self._process.poll() is None:
            self._process.communicate(f"{share} {seed}\n", timeout=scaled(60))
        assert self._process.returncode == 0
        assert not self._folder.is_mount()


@contextmanager
def powered(folder: Path) -> Iterator[Power]:
    """Mount a file system on a new folder; where that isn't possible, see `missing`."""
    if os.geteuid() != 0:
        missing("a file system of the test's own needs root")
    if not Path("/dev/fuse").exists():
        missing("a file system of the test's own needs /dev/fuse")
    root = cache() / "libfuse3"
    try:
        if not root.is_dir():
            unpack("libfuse3", ["libfuse3-3"], root)
        library = next(root.glob("**/libfuse3.so.3"))
    except (NotInstalledError, OSError, StopIteration) as error:
        missing(f"a file system of the test's own needs libfuse3: {error}")
    folder.mkdir(parents=True)
    known = {**os.environ, "FUSE_LIBRARY_PATH": str(library), "LD_LIBRARY_PATH": libraries(root)}
    process = subprocess.Popen(
        [sys.executable, str(_PROGRAM), str(folder)], env=known, stdin=subprocess.PIPE, text=True
    )
    power = Power(process, folder)
    try:
        deadline = deadline_in(30)
        while not folder.is_mount():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield power
    finally:
        power.cut()
