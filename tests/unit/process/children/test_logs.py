import errno
from pathlib import Path

import pytest

from caraway.process.children.logs import KEPT, begin_anew, last_lines, quote, rotate


def test_a_log_is_moved_away_once_it_is_too_long(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    log.write_text("x" * 100)
    assert not rotate(log, limit=100)
    with log.open("a") as still_open:
        still_open.write("y")
        still_open.flush()
        assert rotate(log, limit=100)
        still_open.write("new")
    assert log.read_text() == "new"
    assert (tmp_path / "part.log.1").read_text() == "x" * 100 + "y"


def test_a_start_moves_the_log_of_the_last_one(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    begin_anew(log)
    assert not any(tmp_path.iterdir())
    for start in range(KEPT + 3):
        begin_anew(log)
        # A start that wrote nothing takes no place.
        begin_anew(log)
        log.write_text(f"start {start}")
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    last = KEPT + 2
    assert kept == {"part.log": f"start {last}"} | {
        f"part.log.{number}": f"start {last - number}" for number in range(1, KEPT + 1)
    }


def test_a_log_that_is_too_long_leaves_those_of_earlier_starts(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    log.write_text("first start")
    begin_anew(log)
    log.write_text("second start")
    assert rotate(log, limit=3)
    assert (tmp_path / "part.log.1").read_text() == "second start"
    assert (tmp_path / "part.log.2").read_text() == "first start"


def test_a_log_that_cannot_be_copied_stays_as_it_is_with_those_of_earlier_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "part.log"
    for start in ("first", "second", "third"):
        begin_anew(log)
        log.write_text(f"{start} start")

    def fail(source: Path, target: Path) -> None:
        Path(target).write_text(source.read_text()[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", fail)
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    for _ in range(5):
        assert not rotate(log, limit=3)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


def test_last_lines_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    log.write_bytes(b"\xff first\n\nsecond\n   \nthird\n")
    assert last_lines(log, 2) == ["second", "third"]
    assert last_lines(tmp_path / "none") == []


def test_a_quote_says_where_the_rest_is(tmp_path: Path) -> None:
    assert quote(tmp_path / "none.log") == f"  (nothing was written)\nAll of it: {tmp_path / 'none.log'}"
