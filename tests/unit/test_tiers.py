"""Tests left out of `just test` give a reason, and `just full` runs all of them."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests import tiers
from tests.spread import TESTS
from tests.tiers import LONG, MARK, check_reasons, missing, selected

ROOT = TESTS.parent
JUST = ROOT / ".venv" / "bin" / "just"


class Marked(pytest.Item):
    """A test with a mark."""

    def runtest(self) -> None:
        pass


def marked(request: pytest.FixtureRequest, mark: pytest.MarkDecorator) -> Marked:
    item: Marked = Marked.from_parent(request.session, name="marked", nodeid="test_marked")
    item.add_marker(mark)
    return item


def commands(recipe: str) -> list[list[str]]:
    """Return the calls of pytest that a recipe makes."""
    told = subprocess.run([JUST, "--dry-run", recipe], cwd=ROOT, capture_output=True, text=True, check=True).stderr
    return [shlex.split(line) for line in told.splitlines() if " -m pytest " in line]


def folders(command: list[str]) -> list[Path]:
    return [ROOT / part for part in command if part.startswith("tests/")]


def test_a_reason_is_enough(request: pytest.FixtureRequest) -> None:
    check_reasons([marked(request, pytest.mark.full(reason="two engines for two minutes"))])


@pytest.mark.parametrize(
    "mark",
    [
        getattr(pytest.mark, MARK),
        pytest.mark.full("two engines"),
        pytest.mark.full(reason=" "),
        pytest.mark.full(reason="two engines", because="they are slow"),
    ],
    ids=["none", "unnamed", "empty", "another"],
)
def test_a_mark_without_a_reason_is_refused(mark: pytest.MarkDecorator, request: pytest.FixtureRequest) -> None:
    with pytest.raises(pytest.UsageError, match=r"test_marked: the mark must read `pytest\.mark\.full\(reason="):
        check_reasons([marked(request, mark)])


@pytest.mark.parametrize(
    ("profile", "user", "outcome"),
    [("full", 0, pytest.fail.Exception), ("full", 1000, pytest.skip.Exception), ("desk", 0, pytest.skip.Exception)],
)
def test_root_must_have_all_that_a_full_run_needs(
    profile: str, user: int, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "PROFILE", profile)
    monkeypatch.setattr("os.geteuid", lambda: user)
    with pytest.raises(outcome, match="needs a disk"):
        missing("it needs a disk")


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> list[object]:
    assert selected(request, "nothing of this name") == []
    return selected(request, "case")


@pytest.mark.parametrize("case", ["one", "two", "two again"])
def test_a_fixture_knows_the_cases_that_are_tested(case: str, cases: list[object]) -> None:
    assert case in cases
    assert "of another test" not in cases


@pytest.mark.parametrize("case", ["of another test"])
def test_cases_of_tests_without_the_fixture_do_not_count(case: str, request: pytest.FixtureRequest) -> None:
    assert case == "of another test"
    assert "cases" not in request.fixturenames


def named_tests(reason: str) -> Iterator[tuple[str, list[Path]]]:
    """Yield the files and folders of tests that a reason names, each with those that are there."""
    for name in re.findall(r"[\w/*]*test_[\w*]+\.py", reason):
        yield name, [path for path in TESTS.rglob("test_*.py") if path.match(name)]
    for name in re.findall(r"\b\w+(?:/\w+)+\b(?!\*?\.py)", reason):
        yield name, list((TESTS / name.removeprefix("tests/")).rglob("test_*.py"))


@pytest.mark.parametrize("place", LONG)
def test_what_is_long_is_there_and_so_are_the_tests_that_check_the_same(place: str) -> None:
    assert (TESTS / place).exists()
    for name, found in named_tests(LONG[place]):
        assert any(not any(path.is_relative_to(TESTS / long) for long in LONG) for path in found), name


def test_marks_name_tests_that_are_there() -> None:
    sources = {path.relative_to(TESTS): path.read_text() for path in TESTS.rglob("test_*.py")}
    reasons = [
        (path, said) for path, text in sources.items() for said in re.findall(r'\bfull\(\s*reason="([^"]*)"', text)
    ]
    assert reasons
    assert [(path, name) for path, said in reasons for name, found in named_tests(said) if not found] == []


def test_the_first_tier_leaves_out_nothing_but_marked_tests_and_faults() -> None:
    calls = commands("test")
    assert calls
    for command in calls:
        marks = [command[place + 1] for place, part in enumerate(command) if part == "-m"]
        assert marks == ["pytest", f"not {MARK}"]
    left = {path.name for path in TESTS.iterdir() if list(path.rglob("test_*.py"))}
    left -= {folder.name for command in calls for folder in folders(command)}
    # `just check` runs the tests of documents.
    assert left == {"docs", "faults"}
    assert [folders(command) for command in commands("check")] == [[TESTS / "docs"]]


def test_each_file_of_tests_is_found(request: pytest.FixtureRequest) -> None:
    """Test that no folder of tests has a name that pytest skips in silence, such as `dist` and `build`."""
    passed_over = [str(pattern) for pattern in request.config.getini("norecursedirs")]
    hidden = [
        str(path.relative_to(ROOT))
        for path in TESTS.rglob("test_*.py")
        if any(fnmatch(part, pattern) for part in path.relative_to(TESTS).parts[:-1] for pattern in passed_over)
    ]
    assert hidden == []
