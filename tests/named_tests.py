"""Tests that documents name, as `tests/….py::test_…`."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


@cache
def _tests_of(path: str) -> frozenset[str]:
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def missing(test: str) -> str | None:
    """Return what is wrong with the name of a test, or None."""
    path, _, name = test.partition("::")
    if not (ROOT / path).is_file():
        return f"there is no file {path}"
    return f"{path} has no test {name}" if name and name not in _tests_of(path) else None
