"""mypy and pyright over a user's project: nothing is reported but the mistakes, and these are, line by line."""

import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.markdown import DOCS, run_page

PROJECT = Path(__file__).parents[2] / "typing_project"
MISTAKES = "shop/mistakes.py"

Places = dict[tuple[str, int], list[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, with the code of the page about editors as one more module of it."""
    copy = tmp_path_factory.mktemp("checked") / "project"
    shutil.copytree(PROJECT, copy, ignore=shutil.ignore_patterns("__pycache__", ".mypy_cache"))
    with pytest.MonkeyPatch.context() as patch:
        page = run_page(DOCS / "guides" / "editors.md", copy / "shop", patch)
    assert page.__file__ is not None
    code = Path(page.__file__).read_text(encoding="utf-8")
    Path(page.__file__).write_text("# pyright: strict\n" + code.removeprefix("\n"), encoding="utf-8")
    return copy


def expected(*, mypy: bool) -> set[tuple[str, int]]:
    """The lines that a comment marks; those that only mypy finds on demand."""
    lines = (PROJECT / MISTAKES).read_text(encoding="utf-8").splitlines()
    marked = {number: line for number, line in enumerate(lines, 1) if "  # error: " in line}
    return {(MISTAKES, number) for number, line in marked.items() if mypy or not line.endswith(", mypy")}


def by_mypy(folder: Path) -> Places:
    arguments = ["--config-file=mypy.ini", "--cache-dir=.mypy_cache", "--no-error-summary", "shop"]
    done = _run(folder, "mypy", *arguments)
    assert done.stderr == ""
    found: Places = {}
    for line in done.stdout.splitlines():
        place = re.fullmatch(r"(.+?):(\d+): (error|note): (.*)", line)
        assert place is not None, line
        if place[3] == "error":
            found.setdefault((place[1].replace("\\", "/"), int(place[2])), []).append(place[4])
    return found


def by_pyright(folder: Path) -> Places:
    done = _run(folder, "pyright", "--outputjson", f"--pythonpath={sys.executable}")
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(list((folder / "shop").glob("*.py")))
    found: Places = {}
    for item in report["generalDiagnostics"]:
        name = Path(item["file"]).resolve().relative_to(folder.resolve()).as_posix()
        # A warning, of an expression without effect, isn't what is looked for.
        if item["severity"] == "error":
            found.setdefault((name, item["range"]["start"]["line"] + 1), []).append(item["message"])
    return found


def _run(folder: Path, checker: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", checker, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def missed_and_unwanted(found: Places, wanted: set[tuple[str, int]]) -> tuple[list[object], list[object]]:
    unwanted = [(place, found[place]) for place in sorted(found.keys() - wanted)]
    return [*sorted(wanted - found.keys())], [*unwanted]


def test_mypy_reports_the_mistakes_and_nothing_else(folder: Path) -> None:
    assert missed_and_unwanted(by_mypy(folder), expected(mypy=True)) == ([], [])


@pytest.mark.full(reason="two more runs of mypy, for its cache")
def test_mypy_reports_the_same_out_of_its_cache(folder: Path) -> None:
    first = by_mypy(folder)
    # The other modules come out of the cache now, with what the plugin made of them.
    mistakes = folder / MISTAKES
    mistakes.write_text(mistakes.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert by_mypy(folder) == first


def test_mypy_names_the_dataset_and_the_unknown_field(folder: Path) -> None:
    messages = [message for found in by_mypy(folder).values() for message in found]
    assert 'dataset "Orders" has no field "amont"  [attr-defined]' in messages
    assert 'featureset "Shopper" has no feature "spend"  [attr-defined]' in messages


def test_pyright_reports_the_mistakes_and_nothing_else(folder: Path) -> None:
    assert missed_and_unwanted(by_pyright(folder), expected(mypy=False)) == ([], [])


def test_the_mistakes_are_many() -> None:
    assert len(expected(mypy=False)) > 120
    assert len(expected(mypy=True) - expected(mypy=False)) == 2


def test_the_project_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PROJECT)
    names = {path.stem for path in (PROJECT / "shop").glob("*.py")} - {"__init__", "mistakes"}
    try:
        modules = {name: importlib.import_module(f"shop.{name}") for name in sorted(names)}
        modules["checks"].run()
        modules["plain"].test_commit()
    finally:
        for module in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
            del sys.modules[module]
