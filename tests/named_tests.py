"""Tests that documents name, as `tests/….py::test_…`."""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.tiers import LONG, MARK, TESTS

ROOT = Path(__file__).parents[1]


@cache
def _tests_of(path: str) -> Mapping[str, bool]:
    """Return the functions of a file, and whether each has the mark of the second tier."""
    file = ROOT / path
    if not file.is_file():
        return {}
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return {
        node.name: any(f"mark.{MARK}(" in ast.unparse(each) for each in node.decorator_list)
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def missing(test: str) -> str | None:
    """Return what is wrong with the name of a test, or None."""
    path, _, name = test.partition("::")
    if not (ROOT / path).is_file():
        return f"there is no file {path}"
    return f"{path} has no test {name}" if name and name not in _tests_of(path) else None


def runs_rarely(test: str) -> bool:
    """Return whether a test is in the second tier, by its own mark or by its file or folder."""
    path, _, name = test.partition("::")
    return _tests_of(path)[name] or any((ROOT / path).is_relative_to(TESTS / place) for place in LONG)
