"""Tests of the pages on connectors: their code runs, and they name what servers read and write."""

import re
from pathlib import Path

import pytest

from caraway.connectors import DataConnector
from caraway.graph.connectors import CONNECTORS
from caraway.graph.specs import Graph
from caraway.graph.systems import SYSTEMS, WEBHOOK, TableSystem
from caraway.graph.validation.graphs import validate
from tests.markdown import DOCS, blocks, run_page

PAGE = DOCS / "guides" / "connectors.md"


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = run_page(PAGE, tmp_path, monkeypatch)

    made = tuple(getattr(module, name).to_spec() for name in ("Weighing", "Hive", "Reading", "Heavy"))
    validate(Graph(datasets=made))
    assert [(len(dataset.sources), len(dataset.sinks)) for dataset in made] == [(1, 0), (1, 0), (1, 0), (0, 5)]
    connectors = [value for value in vars(module).values() if isinstance(value, DataConnector)]
    assert all(connector.spec() for connector in connectors)
    code = "\n".join(block.code for block in blocks(PAGE))
    assert [kind for kind in (*SYSTEMS, WEBHOOK) if f"{kind}(" not in code] == []


def written() -> set[str]:
    """Return the kinds of systems that servers write, by the classes of the connectors."""
    # The writer of a table is that of its system, and no text but a property of the connector.
    classes = {name for name, found in CONNECTORS.items() if str(found.writer).startswith("caraway.")}
    return {name.removesuffix("Connector") for name in classes} | {
        system.__name__.removesuffix("System") for system in table_systems() if system.writer
    }


def table_systems(base: type[TableSystem] = TableSystem) -> list[type[TableSystem]]:
    """Return the systems whose tables are read or written."""
    below = [found for made in base.__subclasses__() for found in [made, *table_systems(made)]]
    # A dataclass with slots is made anew, and the first class is listed as well until it is collected.
    return list({found.__name__: found for found in below if not found.__name__.startswith("_")}.values())


def named(kinds: set[str], text: str) -> set[str]:
    return {kind for kind in kinds if re.search(rf"\b{kind}\b", text)}


def test_all_pages_name_the_same_sinks_as_the_code() -> None:
    assert {"Kafka", "Postgres", "Snowflake"} <= written()
    readme = (DOCS.parent / "README.md").read_text()
    _, _, connected = readme.partition("* **Connected.**")
    reads, _, writes = connected.partition("\n\n")[0].partition("and writes")
    # A sink of S3 writes Delta's tables, whose name stands there.
    assert named(written() - {"S3"}, writes) == written() - {"S3"}
    assert "Delta" in writes
    kinds = {*SYSTEMS, WEBHOOK}
    assert named(kinds, writes) <= written()
    readers = {system.__name__.removesuffix("System") for system in table_systems() if system.reader}
    assert named(readers, reads) == readers

    _, _, sinks = PAGE.read_text().partition("## What sinks write")
    rows = re.findall(r"^\| (\w+)[^|]* \| (?:exactly|at least) once", sinks, re.MULTILINE)
    assert set(rows) == written()

    overview = (DOCS / "reference" / "README.md").read_text().partition("## Connectors")[2].partition("\n## ")[0]
    cells = [line.split("|")[1:4] for line in overview.splitlines() if line.startswith("| [")]
    assert {kind for names, _, sink in cells if sink.strip() for kind in named(kinds, names)} == written()


def test_no_page_claims_that_windows_end_to_the_microsecond() -> None:
    pages = [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    claim = re.compile(r"(?:any|every|each) microsecond", re.IGNORECASE)
    assert [page.name for page in pages if claim.search(page.read_text())] == []
