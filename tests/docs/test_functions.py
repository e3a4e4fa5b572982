"""Functions stay short enough to be read whole, and imports stay at the top of modules."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.rooms import SOURCES

# A function of this many lines fits a screen.
LINES = 80
# An import inside a function hides what a module needs, and is paid for by the first call. Those that stay spare
# `import caraway`, the command line and queries of few rows a library that takes longer to import than all else.
LATE = 10
# The libraries of optional extras, and modules that need one: a function imports them, since they may not be there.
EXTRAS = (
    "caraway.apps.mcp",
    "caraway.apps.stack.classes",
    "caraway.offline.spark",
    "caraway.process.children.process_table",
    "caraway.state.upgrading",
    "fastavro",
    "rich",
    "uvicorn",
)
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


def test_few_imports_stand_in_functions() -> None:
    late = {
        f"{path}:{inside.lineno} {ast.unparse(inside)}"
        for path, node in _functions()
        for inside in ast.walk(node)
        if isinstance(inside, ast.Import | ast.ImportFrom) and not _imported(inside).startswith(EXTRAS)
    }
    assert len(late) <= LATE, sorted(late)


def _imported(statement: ast.Import | ast.ImportFrom) -> str:
    return statement.names[0].name if isinstance(statement, ast.Import) else statement.module or ""
