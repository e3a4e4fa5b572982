"""Objects appear as a whole, with the names and content that were written."""

import hashlib
import threading
from pathlib import Path

import pytest

from caraway.dataplane.objects.folder import PARTS, ObjectFolder
from caraway.errors import UnavailableError


@pytest.fixture
def folder(tmp_path: Path) -> ObjectFolder:
    return ObjectFolder(str(tmp_path / "store"))


def test_what_is_written_is_listed_and_read(folder: ObjectFolder) -> None:
    assert folder.stored() == []
    folder.write("b/c/2", b"two")
    folder.write("a/1", b"one")
    folder.write("a/1", b"uno")
    assert [(stored.name, stored.size) for stored in folder.stored()] == [("a/1", 3), ("b/c/2", 3)]
    assert [stored.name for stored in folder.stored("b")] == ["b/c/2"]
    assert folder.stored("nothing") == []
    assert folder.read("a/1") == b"uno"


def test_files_go_in_and_out_with_their_digests(folder: ObjectFolder, tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    (tmp_path / "in").write_bytes(content)
    digest = folder.put(tmp_path / "in", "x/y")
    assert folder.fetch("x/y", tmp_path / "out") == digest == hashlib.sha256(content).hexdigest()
    assert (tmp_path / "out").read_bytes() == content


def test_a_write_that_fails_leaves_nothing(folder: ObjectFolder, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="can't be used at"):
        folder.put(tmp_path / "missing", "x/y")
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []


def test_an_unfinished_object_is_not_listed(folder: ObjectFolder, tmp_path: Path) -> None:
    folder.write("a", b"")
    (tmp_path / "store" / PARTS / "1234").write_bytes(b"half")
    assert [stored.name for stored in folder.stored()] == ["a"]


def test_abandoned_parts_are_removed(folder: ObjectFolder, tmp_path: Path) -> None:
    folder.tidy(0)
    folder.write("a", b"")
    part = tmp_path / "store" / PARTS / "1234"
    part.write_bytes(b"half")
    begun = part.stat().st_mtime
    folder.tidy(begun - 1)
    assert part.exists()
    folder.tidy(begun + 1)
    assert not part.exists()
    assert [stored.name for stored in folder.stored()] == ["a"]


def test_removing_twice_is_removing(folder: ObjectFolder) -> None:
    folder.write("a", b"")
    folder.remove("a")
    folder.remove("a")
    assert folder.stored() == []


def test_missing_objects_and_invalid_addresses_are_errors(folder: ObjectFolder) -> None:
    with pytest.raises(UnavailableError, match=r"can't be used at .*store/a"):
        folder.read("a")
    with pytest.raises(UnavailableError, match="nonsense://x"):
        ObjectFolder("nonsense://x")


def test_a_store_that_can_not_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UnavailableError):
        ObjectFolder(str(tmp_path / "file")).write("a/b", b"")


def test_a_listing_survives_objects_that_come_and_go(folder: ObjectFolder) -> None:
    folder.write("keep/a", b"")
    ended = threading.Event()

    def churn() -> None:
        while not ended.is_set():
            folder.write("keep/b", b"x")
            folder.remove("keep/b")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(200):
            assert "keep/a" in {stored.name for stored in folder.stored()}
    finally:
        ended.set()
        thread.join()
