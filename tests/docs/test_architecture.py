"""The map of the repository is true: what it names exists, and no room is missing from it."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.markdown import DOCS, dead_links

ROOT = DOCS.parent
MAP = DOCS / "inside" / "architecture.md"
PAGES = (MAP, DOCS / "learn" / "glossary.md", ROOT / "CONTRIBUTING.md", ROOT / "README.md")
SOURCES = ROOT / "src" / "caraway"
# Packages of the public API re-export the names that users import from them.
PUBLIC = {
    "",
    "client",
    "connectors",
    "datasets",
    "dtypes",
    "expr",
    "featuresets",
    "integrations",
    "lib",
    "testing",
}
# The rules of these packages register themselves when the package is imported; `apps/cli` names the extra that is
# missing.
REGISTERING = {"apps/cli", "dataplane/streams/spark/expressions", "expr/inference", "expr/namespaces", "graph/schemas"}
NAMED = re.compile(r"`((?:src|jvm|proto|docs|tests)/[\w./-]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    assert [name for name in NAMED.findall(page.read_text()) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert not dead_links(page)


def _rooms_of_the_map() -> list[str]:
    _, _, rest = MAP.read_text().partition("## Rooms")
    table, _, _ = rest.partition("\n## ")
    return re.findall(r"^\| `src/caraway/(\w+)` \|", table, re.MULTILINE)


def test_every_room_is_on_the_map() -> None:
    rooms = {folder.name for folder in (ROOT / "src" / "caraway").iterdir() if (folder / "__init__.py").exists()}
    assert set(_rooms_of_the_map()) == rooms


def test_rooms_stand_in_the_order_of_their_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "rooms")
    rank = {name: depth for depth, layer in enumerate(layers) for name in re.findall(r"\w+", layer)}
    depths = [rank[name] for name in _rooms_of_the_map()]
    assert depths == sorted(depths)


def test_only_the_public_api_re_exports() -> None:
    found = {
        file.parent.relative_to(SOURCES).as_posix().removeprefix(".")
        for file in SOURCES.rglob("__init__.py")
        if any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.parse(file.read_text()).body)
    }
    assert found <= PUBLIC | REGISTERING, "import each name from the module that defines it"


def test_every_word_of_the_glossary_has_one_meaning() -> None:
    lines = (DOCS / "learn" / "glossary.md").read_text().splitlines()
    tables = [line.split("|") for line in lines if line.startswith("| ")]
    rows = [[cell.strip() for cell in cells[1:-1]] for cells in tables]
    assert {len(row) for row in rows} == {4}
    words = [word.strip() for row in rows if row[0] != "word" for word in row[0].split(",")]
    assert len(words) > 40
    assert len(words) == len(set(words))
