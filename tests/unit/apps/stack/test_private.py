"""Only its owner can read the data folder."""

import signal
from pathlib import Path

from caraway.apps.stack.folder import DataFolder, make_private
from caraway.process.children.part import Launch
from caraway.process.children.process import start
from caraway.process.private_files import kept_password


def test_a_folder_of_an_older_version_is_mended(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "kafka" / "data").mkdir(parents=True)
    segment = data / "kafka" / "data" / "0.log"
    segment.write_text("rows")
    (data / "offline" / "1").mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.write_text("not ours")
    (data / "link").symlink_to(outside)
    theirs = data / "notebook.py"
    theirs.write_text("not ours either")
    for path in (data, data / "kafka", segment, data / "offline", data / "offline" / "1", outside, theirs):
        path.chmod(0o755)
    folder = DataFolder(data)
    folder.claim()
    folder.release()
    assert [path for path in data.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o077] == [theirs]
    assert data.stat().st_mode & 0o777 == 0o700
    # The owner can still execute an executable file, and the target of a link keeps its mode.
    assert segment.stat().st_mode & 0o777 == 0o700
    assert outside.stat().st_mode & 0o777 == 0o755
    assert make_private(data) == 0


def test_a_part_that_works_in_a_folder_of_others_leaves_its_mode_alone(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    log = tmp_path / "log"
    process = start(Launch(command=("true",), folder=shared), log, signal.SIGKILL)
    assert process.wait(20) == 0
    assert shared.stat().st_mode & 0o777 == 0o755
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_password_is_made_once(tmp_path: Path) -> None:
    file = tmp_path / "kafka" / "password"
    password = kept_password(file, 24)
    assert len(password) == 48
    assert kept_password(file, 24) == password
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
