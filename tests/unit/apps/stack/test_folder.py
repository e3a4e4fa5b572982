import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from caraway.apps.stack import folder as folder_module
from caraway.apps.stack.errors import AlreadyRunningError, DataFolderError
from caraway.apps.stack.folder import DataFolder
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.settings import load_settings


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    folder = DataFolder(tmp_path / "data")
    yield folder
    folder.release()


def test_a_folder_is_claimed_once(folder: DataFolder) -> None:
    assert not folder.is_claimed()
    folder.claim()
    assert folder.is_claimed()
    with pytest.raises(AlreadyRunningError, match=f"process {os.getpid()}") as caught:
        DataFolder(folder.path).claim()
    assert "caraway down" in str(caught.value)
    folder.release()
    assert not folder.is_claimed()
    folder.claim()


def test_what_is_known_about_a_stack_is_its_owners(folder: DataFolder) -> None:
    folder.claim()
    assert folder.run.stat().st_mode & 0o077 == 0


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(DataFolderError, match="a file is in the way"):
        DataFolder(tmp_path / "data").claim()


def test_a_full_disk(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "LEAST_FREE_BYTES", 1 << 62)
    with pytest.raises(DataFolderError, match="is full") as caught:
        folder.claim()
    assert "--data" in str(caught.value)
    assert not folder.is_claimed()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written(folder: DataFolder, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(path: Path, data: bytes) -> int:
        raise OSError(number, os.strerror(number), str(path), len(data))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(DataFolderError, match="can't be written") as caught:
        folder.claim()
    assert "CARAWAY_DATA_DIR" in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
@pytest.mark.parametrize("part", [".", "run"])
def test_a_folder_of_another_user_is_refused_with_the_remedy(tmp_path: Path, part: str) -> None:
    data = tmp_path / "data"
    (data / part).mkdir(parents=True)
    os.chown(data / part, 12345, 12345)
    with pytest.raises(DataFolderError, match=r"belongs to another user(?s:.)*chown"):
        DataFolder(data).claim()
    assert not (data / "run" / "token").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
def test_settings_of_another_user_are_refused_with_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "caraway.toml"
    file.write_text('[spark]\nconf = ["spark.driver.extraJavaOptions=-javaagent:/tmp/evil.jar"]\n')
    assert load_settings(tmp_path).spark.conf
    os.chown(file, 12345, 12345)
    with pytest.raises(ConfigurationError, match=r"belongs to another user.*chown"):
        load_settings(tmp_path)
