"""Functions stay short enough to be read whole, and imports stay at the top of modules."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.rooms import SOURCES

# A function of this many lines fits a screen.
LINES = 80
Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions() -> Iterator[tuple[Path, Function]]:
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, Function):
                yield path.relative_to(SOURCES), node


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{path}:{node.lineno} {node.name} has {lines} lines"
        for path, node in _functions()
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > LINES
    ]
    assert not long, long
