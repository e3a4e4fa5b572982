"""Folders for temporary files go with their process, also if it is killed; those of living processes stay."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL

from caraway.process.scratch import ScratchFolder, sweep

OWNER = """
import sys
from pathlib import Path
from caraway.process.scratch import ScratchFolder
folder = ScratchFolder("test", Path(sys.argv[1]))
(folder.path / "file").write_text("something")
print(folder.path, flush=True)
sys.stdin.read()
"""


@contextmanager
def owner(base: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Yield a process that has made a folder, and the folder."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(base)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    with owner(tmp_path) as (killed, left), owner(tmp_path) as (_, used), ScratchFolder("test", tmp_path) as own:
        assert sweep(tmp_path) == []
        killed.send_signal(SIGKILL)
        killed.wait()
        assert sweep(tmp_path) == [left]
        assert not left.exists()
        assert (used / "file").read_text() == "something"
        assert own.path.is_dir()
    assert not own.path.exists()


def test_other_folders_and_links_are_left_alone(tmp_path: Path) -> None:
    other, target = tmp_path / "caraway-something", tmp_path / "target"
    for folder in (other, target):
        folder.mkdir()
    (tmp_path / "caraway-scratch-link").symlink_to(target)
    (tmp_path / "caraway-scratch-file").write_text("")
    assert sweep(tmp_path) == []
    assert other.is_dir()
    assert target.is_dir()


def test_a_folder_is_removed_by_its_process(tmp_path: Path) -> None:
    with ScratchFolder("test", tmp_path) as folder:
        (folder.path / "file").write_text("something")
    assert list(tmp_path.iterdir()) == []
