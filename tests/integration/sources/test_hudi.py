"""Tables that Hudi writes, read as sources: after each instant, the dataset has the rows that Hudi itself reads."""

import random
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from caraway.errors import UnavailableError
from caraway.graph.sources import Cdc
from tests.services.hudi import FIELDS, HudiTables, running_hudi
from tests.unit.dataplane.sources.hudi_source import HudiSource, applied, chosen
from tests.unit.dataplane.sources.lake import EVENTS, rows_of

pytestmark = [
    pytest.mark.full(reason="a JVM with another Spark, some seconds a commit; recorded tables are in the unit tests"),
    pytest.mark.timeout(900),
]
VERSIONS = (6, 8)
PARTS = ("p %0", "p1", None)


@pytest.fixture(scope="module")
def hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiTables]:
    with running_hudi(tmp_path_factory.mktemp("hudi")) as tables:
        yield tables


class Writer:
    """Changes a table at random. A row keeps its partition, as Hudi's usual indexes demand."""

    def __init__(self, hudi: HudiTables, path: Path, version: int, seed: int) -> None:
        self.hudi, self.path, self.version = hudi, path, version
        self.chance = random.Random(seed)
        self.minute = 0
        self.schema = FIELDS
        # The writer keeps a list of files in the table, or doesn't.
        self.options = {"hoodie.metadata.enable": str(seed % 2 == 0).lower()}
        self.steps = ["upsert", "upsert", "upsert", "insert", "widen"]
        if version > 6:
            # The procedures of Hudi 1 write tables of its own version only.
            self.steps += ["cluster", "merge"]

    def row(self, key: int) -> dict[str, Any]:
        self.minute += 1
        # Some rows are older than those that they would replace, so they don't.
        minute = self.minute - self.chance.choice([0, 0, 0, 40])
        found: dict[str, Any] = {"k": key, "text": f"t{self.minute}", "n": self.minute, "part": PARTS[key % 3]}
        found |= {
            "at": f"2024-01-0{1 + (100 + minute) // 1440}T{(100 + minute) // 60 % 24:02d}:{(100 + minute) % 60:02d}:00Z"
        }
        return found | ({"more": "m"} if "more" in self.schema else {})

    def keys(self, most: int) -> list[int]:
        return self.chance.sample(range(12), self.chance.randint(1, most))

    def step(self) -> str:
        """Change the table once, and return how."""
        kind = self.chance.choice(self.steps)
        match kind:
            case "upsert":
                self.write([self.row(key) for key in self.keys(4)])
            case "insert":
                self.write([self.row(100 + self.minute * 3 + at) for at in range(3)], "insert")
            case "widen":
                self.schema = f"{FIELDS.replace('n int', 'n long')}, more string"
                self.write([self.row(key) for key in self.keys(3)])
            case "merge":
                self.merge()
            case _:
                self.hudi.sql(f"call run_clustering(path => '{self.path}', order => 'k')")
        return kind

    def merge(self) -> None:
        """Change some columns of a row by SQL."""
        there = [each for each in self.hudi.read(self.path) if each.get("part")]
        if not there:
            return
        new = self.row(self.chance.choice(there)["k"])
        # A table of the catalog keeps the columns that it had when it was made.
        table = f"rows_{secrets.token_hex(6)}"
        self.hudi.sql(f"create table {table} using hudi location '{self.path}'")
        self.hudi.sql(
            f"merge into {table} t using (select cast({new['k']} as bigint) as k, '{new['text']}' as text, "
            f"'{new['part']}' as part, timestamp'{new['at']}' as at) s on t.k = s.k "
            "when matched then update set text = s.text, at = s.at"
        )

    def write(
        self, rows: list[dict[str, Any]], operation: str = "upsert", options: Mapping[str, str] | None = None
    ) -> None:
        options = {**self.options, **(options or {})}
        self.hudi.write(self.path, rows, operation, version=self.version, schema=self.schema, options=options)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("version", VERSIONS)
def test_after_each_instant_the_rows_are_those_that_hudi_reads(
    hudi: HudiTables, tmp_path: Path, version: int, seed: int
) -> None:
    writer = Writer(hudi, tmp_path / "rows", version, seed)
    writer.write([writer.row(key) for key in range(9)])
    source = HudiSource(writer.path)
    chance = random.Random(seed)
    state: dict[int, dict[str, Any]] = {}
    compared = 0
    for _ in range(5):
        steps = [writer.step() for _ in range(chance.randint(1, 3))]
        changes: dict[str, list[Any]] = {}
        for batch, at in source.drain_with_crashes(chance, lambda: chance.randint(1, 4)):
            changes.setdefault(str(batch.origin(at)["instant"]), []).append(batch.rows.row(at))
        for instant, some in changes.items():
            applied(state, some)
            assert state == content(hudi, writer.path, instant), f"{steps} as of {instant}"
            compared += 1
        assert state == content(hudi, writer.path), f"after {steps}"
    assert compared > 3


def content(hudi: HudiTables, path: Path, at: str | None = None) -> dict[int, dict[str, Any]]:
    return {each["k"]: chosen(each) for each in hudi.read(path, at)}


@pytest.mark.parametrize("version", VERSIONS)
def test_events_come_once_and_rows_that_were_only_written_anew_do_not_come_again(
    hudi: HudiTables, tmp_path: Path, version: int
) -> None:
    writer = Writer(hudi, tmp_path / "rows", version, 3)
    writer.write([writer.row(key) for key in range(6)])
    source = HudiSource(writer.path, cdc=Cdc.APPEND, dataset=EVENTS)
    before: list[dict[str, Any]] = []
    for operation in ("upsert", "insert", "upsert", "bulk_insert"):
        now = list(content(hudi, writer.path).values())
        found = [chosen(each) for each in rows_of(source.drain(rows=2))]
        assert sorted(map(repr, found)) == sorted(repr(each) for each in now if each not in before)
        before = now
        keys = (2, 7) if operation == "upsert" else (writer.minute + 100, writer.minute + 101)
        writer.minute += 60
        writer.write([writer.row(key) for key in keys], operation)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("operation", "options"),
    [
        ("delete", {}),
        ("insert_overwrite", {}),
        ("delete_partition", {"hoodie.datasource.write.partitions.to.delete": "p1"}),
    ],
)
def test_an_instant_that_removes_rows_is_an_error(
    hudi: HudiTables, tmp_path: Path, version: int, operation: str, options: Mapping[str, str]
) -> None:
    writer = Writer(hudi, tmp_path / "rows", version, 8)
    writer.write([writer.row(key) for key in range(6)])
    source = HudiSource(writer.path)
    source.drain()
    # A delete of a row that isn't there removes none.
    writer.write([writer.row(70)], "delete")
    writer.write([writer.row(70)])
    assert [each["k"] for each in rows_of(source.drain())] == [70]
    writer.write([] if operation == "delete_partition" else [writer.row(1)], operation, options)
    with pytest.raises(UnavailableError, match=rf"the instant .* \({operation.upper()}\) removes rows"):
        source.drain()


@pytest.mark.parametrize("version", VERSIONS)
def test_files_that_the_cleaner_has_removed_unread_are_an_error(hudi: HudiTables, tmp_path: Path, version: int) -> None:
    writer = Writer(hudi, tmp_path / "rows", version, 4)
    writer.write([writer.row(key) for key in range(6)])
    source = HudiSource(writer.path)
    source.drain()
    options = {"hoodie.clean.automatic": "true", "hoodie.cleaner.commits.retained": "1"}
    for _ in range(4):
        writer.write([writer.row(1), writer.row(3)], options=options)
    with pytest.raises(UnavailableError, match=r"the cleaner has removed .* before it was read; keep files for long"):
        source.drain()
    # A source that begins anew has the rows of the table.
    source.position = {}
    state: dict[int, dict[str, Any]] = {}
    applied(state, rows_of(source.drain()))
    assert state == content(hudi, writer.path)


@pytest.mark.parametrize("version", VERSIONS)
def test_instants_that_were_archived_unread_are_an_error(hudi: HudiTables, tmp_path: Path, version: int) -> None:
    writer = Writer(hudi, tmp_path / "rows", version, 5)
    writer.write([writer.row(key) for key in range(3)])
    source = HudiSource(writer.path)
    source.drain()
    options = {
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.cleaner.commits.retained": "1",
    }
    for _ in range(6):
        writer.write([writer.row(1)], options=options)
    with pytest.raises(
        UnavailableError, match="isn't on the timeline any more: instants were archived that weren't rea"
    ):
        source.drain()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_that_has_failed_makes_no_rows(hudi: HudiTables, tmp_path: Path, version: int) -> None:
    writer = Writer(hudi, tmp_path / "rows", version, 6)
    writer.write([writer.row(key) for key in range(6)])
    source = HudiSource(writer.path)
    state: dict[int, dict[str, Any]] = {}
    applied(state, rows_of(source.drain()))
    writer.write([writer.row(1), writer.row(30)])
    timeline = writer.path / ".hoodie" / ("timeline" if version > 6 else "")
    completed = sorted(file for file in timeline.iterdir() if file.suffix == ".commit" and file.name[0] != ".")
    completed[-1].unlink()
    shutil.rmtree(writer.path / ".hoodie" / ".temp", ignore_errors=True)
    assert rows_of(source.drain()) == []
    # The next writer rolls it back before it writes.
    writer.write([writer.row(2)])
    applied(state, rows_of(source.drain()))
    assert state == content(hudi, writer.path)
    assert 30 not in state
