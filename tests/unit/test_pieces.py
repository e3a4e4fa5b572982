"""Tests of the pieces of `just full`: each long test is in one, and a piece is to be run again after any change."""

from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests import pieces
from tests.pieces import ROOT, Passed, Piece

FOLDERS = ("integration", "e2e", "parity", "faults")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / "tests" / folder).rglob("test_*.py"))
ONE = """
[one]
guards = "that one is one."
run = ["pytest tests/one -n 0"]
sources = ["src"]
packages = ["p"]
"""
# The recipes of the justfile that run tests, with their files.
RECIPES = {"faults": "tests/faults", "fuzz": "tests/integration/server/test_fuzz.py"}


def runs(piece: Piece, file: Path) -> bool:
    for recipe, *words in piece.run:
        left_out = [word.partition("=")[2] for word in words if word.startswith("--ignore-glob=")]
        named = words if recipe == "pytest" else [RECIPES.get(recipe, "")]
        if any(word and file.is_relative_to(ROOT / word) for word in named if not word.startswith("-")):
            return not any(fnmatch(str(file), pattern) for pattern in left_out)
    return False


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_each_file_of_tests_is_in_one_piece(file: Path) -> None:
    found = [piece for piece in pieces.pieces() if runs(piece, file)]
    if file.name != "test_fuzz.py":
        # Two pieces may share the cases of a file: one has those that the other leaves out.
        chosen = [words[words.index("-k") + 1] for piece in found for words in piece.run if "-k" in words]
        assert len(found) == (2 if chosen else 1), found
        assert chosen[1:] == [f"not ({word})" for word in chosen[:1]]


def test_all_that_pieces_name_is_there() -> None:
    for piece in pieces.pieces():
        assert len(piece.digest()) == 32
        assert piece.guards


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the root of a repository with one piece, whose test passes."""
    for file, text in {
        "tests/pieces.toml": ONE,
        "tests/one/test_one.py": "def test_one() -> None:\n    from tests.other.helper import a\n    assert a\n",
        "tests/other/helper.py": "a = 1\n",
        "tests/a.py": "",
        "tests/services/a.py": "",
        "tests/integration/conftest.py": "",
        "src/a.py": "",
        "uv.lock": '[[package]]\nname = "p"\nversion = "1"\n',
        "pytest.ini": "[pytest]\n",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    monkeypatch.setattr(pieces, "ROOT", tmp_path)
    monkeypatch.setattr(pieces, "PIECES", tmp_path / "tests" / "pieces.toml")
    monkeypatch.setattr(pieces, "PASSED", tmp_path / "tests" / "passed.json")
    # Each pytest that a piece starts would import these plugins, which the piece's test doesn't use.
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:schemathesis -p no:anyio -p no:hypothesispytest")
    pieces.locked.cache_clear()
    yield tmp_path
    pieces.locked.cache_clear()


def test_a_piece_is_run_again_only_after_a_change(repository: Path) -> None:
    (piece,) = pieces.pieces()
    assert not Passed.read().has(piece)
    assert pieces.main(["--changed"]) == 0
    assert Passed.read().has(piece)
    written = pieces.PASSED.read_text()
    (repository / "tests" / "one" / "test_one.py").touch()
    assert pieces.main(["--changed"]) == 0
    assert pieces.PASSED.read_text() == written
    tests = ("tests/one/test_one.py", "tests/other/helper.py", "tests/services/a.py")
    for changed in ("src/a.py", "src/new.py", *tests, "uv.lock"):
        file = repository / changed
        before = file.read_text() if file.exists() else None
        file.write_text('[[package]]\nname = "p"\nversion = "2"\n' if changed == "uv.lock" else "another = 1\n")
        pieces.locked.cache_clear()
        assert not Passed.read().has(piece), changed
        if before is None:
            file.unlink()
        else:
            file.write_text(before)
        pieces.locked.cache_clear()
        assert Passed.read().has(piece), changed


def test_comments_and_pages_for_people_are_nothing_to_run_a_piece_for(repository: Path) -> None:
    (piece,) = pieces.pieces()
    (repository / "src" / "a.py").write_text("# Before.\nvalue = 1  # Behind.\n")
    digest = piece.digest()
    (repository / "src" / "a.py").write_text("value = 1  # Behind.\n    # Another comment.\n")
    (repository / "src" / "README.md").write_text("A room.\n")
    assert piece.digest() == digest
    (repository / "src" / "a.py").write_text("value = 2  # Behind.\n")
    assert piece.digest() != digest


def test_a_piece_that_fails_has_not_passed(repository: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (repository / "tests" / "one" / "test_one.py").write_text("def test_one() -> None:\n    assert 1 == 2\n")
    assert pieces.main([]) == 1
    assert pieces.main(["--left"]) == 0
    said = capfd.readouterr().out
    assert "failed: one" in said
    assert "haven't passed for these sources: one" in said
    with pytest.raises(SystemExit):
        pieces.main(["two"])
