"""The oracle shares no code with the product, so that both can't have one mistake in common."""

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
# The semantics, and the modules that they may use.
ORACLE = {"semantics", "plain", "windows", "functions"}
OWN = "tests.unit.oracle"


@pytest.mark.parametrize("module", sorted(ORACLE))
def test_a_module_of_the_oracle_imports_no_product(module: str) -> None:
    tree = ast.parse((FOLDER / f"{module}.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            source = node.module or ""
            imported |= {f"{source}.{alias.name}" for alias in node.names} if source == OWN else {source}
    assert "" not in imported, "relative imports hide where they lead"
    assert not [name for name in imported if name.partition(".")[0] == "caraway"]
    own = {name.removeprefix(f"{OWN}.").partition(".")[0] for name in imported if name.startswith("tests")}
    assert own <= ORACLE, f"{module} imports {own - ORACLE}"
