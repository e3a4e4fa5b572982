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
from tests.services.hudi import COPY_ON_WRITE, FIELDS, MERGE_ON_READ, HudiTables, running_hudi
from tests.unit.ingest.hudi_source import HudiSource, applied, chosen
from tests.unit.ingest.lake import EVENTS, rows_of

pytestmark = [
    pytest.mark.full(reason="a JVM with another Spark, some seconds a commit; recorded tables are in the unit tests"),
    pytest.mark.timeout(900),
]
KINDS = [(kind, version) for kind in (COPY_ON_WRITE, MERGE_ON_READ) for version in (6, 8)]
# Compaction is a step of its own.
APART = {"hoodie.compact.inline": "false"}
PARTS = ("p %0", "p1", None)


@pytest.fixture(scope="module")
def hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiTables]:
    with running_hudi(tmp_path_factory.mktemp("hudi")) as tables:
        yield tables


class Writer:
    """Changes a table at random. A row keeps its partition, as Hudi's usual indexes demand."""

    def __init__(self, hudi: HudiTables, path: Path, kind: str, version: int, seed: int) -> None:
        self.hudi, self.path, self.kind, self.version = hudi, path, kind, version
        self.chance = random.Random(seed)
        self.minute = 0
        self.schema = FIELDS
        # The writer keeps a list of files in the table, or doesn't.
        self.options = {**APART, "hoodie.metadata.enable": str(seed % 2 == 0).lower()}
        self.steps = ["upsert", "upsert", "upsert", "delete", "delete", "insert", "overwrite", "drop", "widen"]
        if kind == MERGE_ON_READ:
            self.steps += ["compact", "compact", "schedule"]
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
            case "delete":
                there = [each["k"] for each in self.hudi.read(self.path)]
                some = self.chance.sample(there, min(2, len(there)))
                self.write([self.row(key) for key in some or [0]], "delete")
            case "overwrite":
                self.write([self.row(key) for key in self.keys(2)], "insert_overwrite")
            case "drop":
                options = {"hoodie.datasource.write.partitions.to.delete": "p1"}
                self.write([], "delete_partition", options)
            case "widen":
                self.schema = f"{FIELDS.replace('n int', 'n long')}, more string"
                self.write([self.row(key) for key in self.keys(3)])
            case "compact":
                options = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
                self.write([self.row(key) for key in self.keys(3)], options=options)
            case "schedule":
                options = {"hoodie.compact.schedule.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
                self.write([self.row(key) for key in self.keys(3)], options=options)
            case "merge":
                self.merge()
            case _:
                self.hudi.sql(f"call run_clustering(path => '{self.path}', order => 'k')")
        return kind

    def merge(self) -> None:
        """Change some columns of a row by SQL, of which merge-on-read tables log only these."""
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
        self.hudi.write(
            self.path,
            rows,
            operation,
            kind=self.kind,
            version=self.version,
            schema=self.schema,
            options={**self.options, **(options or {})},
        )


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_after_each_instant_the_rows_are_those_that_hudi_reads(
    hudi: HudiTables, tmp_path: Path, kind: str, version: int, seed: int
) -> None:
    writer = Writer(hudi, tmp_path / "rows", kind, version, seed)
    writer.write([writer.row(key) for key in range(9)])
    source = HudiSource(writer.path)
    chance = random.Random(seed)
    state: dict[int, dict[str, Any]] = {}
    compared = 0
    for _ in range(5):
        steps = [writer.step() for _ in range(chance.randint(1, 3))]
        if "schedule" in steps and version == 6:
            # A compaction that was only planned holds up the readers of this version until it is done.
            writer.write([writer.row(1)], options={"hoodie.compact.inline": "true"})
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


@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_events_come_once_and_rows_that_were_only_written_anew_do_not_come_again(
    hudi: HudiTables, tmp_path: Path, kind: str, version: int
) -> None:
    writer = Writer(hudi, tmp_path / "rows", kind, version, 3)
    writer.write([writer.row(key) for key in range(6)])
    source = HudiSource(writer.path, cdc=Cdc.APPEND, dataset=EVENTS)
    before: list[dict[str, Any]] = []
    for operation in ("upsert", "delete", "compact", "upsert"):
        now = list(content(hudi, writer.path).values())
        found = [chosen(each) for each in rows_of(source.drain(rows=2))]
        assert sorted(map(repr, found)) == sorted(repr(each) for each in now if each not in before)
        before = now
        options = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
        is_compaction = operation == "compact" and kind == MERGE_ON_READ
        if operation == "delete":
            # Hudi 1.0.2 can't compact the delete of a key that its log files have, too.
            writer.write([writer.row(4)], "delete")
        else:
            writer.write([writer.row(2), writer.row(7)], options=options if is_compaction else None)


@pytest.mark.parametrize("version", [6, 8])
def test_a_planned_compaction_holds_up_only_tables_of_version_6(hudi: HudiTables, tmp_path: Path, version: int) -> None:
    writer = Writer(hudi, tmp_path / "rows", MERGE_ON_READ, version, 7)
    plan = {"hoodie.compact.schedule.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
    source = HudiSource(writer.path)
    state: dict[int, dict[str, Any]] = {}
    writer.write([writer.row(key) for key in range(6)])
    applied(state, rows_of(source.drain()))
    writer.write([writer.row(1), writer.row(2)], options=plan)
    planned = content(hudi, writer.path)
    writer.minute += 60
    writer.write([writer.row(1), writer.row(4)])
    written = content(hudi, writer.path)
    applied(state, rows_of(source.drain()))
    assert state == (planned if version == 6 else written) != (written if version == 6 else planned)
    writer.write([writer.row(3)], options={"hoodie.compact.inline": "true"})
    applied(state, rows_of(source.drain()))
    assert state == content(hudi, writer.path)


@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_files_that_the_cleaner_has_removed_unread_are_an_error(
    hudi: HudiTables, tmp_path: Path, kind: str, version: int
) -> None:
    writer = Writer(hudi, tmp_path / "rows", kind, version, 4)
    writer.write([writer.row(key) for key in range(6)])
    source = HudiSource(writer.path)
    source.drain()
    options = {
        "hoodie.clean.automatic": "true",
        "hoodie.cleaner.commits.retained": "1",
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": "1",
    }
    if kind == COPY_ON_WRITE:
        del options["hoodie.compact.inline"]
    for _ in range(4):
        writer.write([writer.row(1), writer.row(3)], options=options)
    with pytest.raises(
        UnavailableError, match="the cleaner has removed them before they were read; keep them for long"
    ):
        source.drain()
    # A source that begins anew has the rows of the table.
    source.position = {}
    state: dict[int, dict[str, Any]] = {}
    applied(state, rows_of(source.drain()))
    assert state == content(hudi, writer.path)


@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_instants_that_were_archived_unread_are_an_error(
    hudi: HudiTables, tmp_path: Path, kind: str, version: int
) -> None:
    writer = Writer(hudi, tmp_path / "rows", kind, version, 5)
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


@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_a_commit_that_has_failed_makes_no_rows(hudi: HudiTables, tmp_path: Path, kind: str, version: int) -> None:
    writer = Writer(hudi, tmp_path / "rows", kind, version, 6)
    writer.write([writer.row(key) for key in range(6)])
    source = HudiSource(writer.path)
    state: dict[int, dict[str, Any]] = {}
    applied(state, rows_of(source.drain()))
    writer.write([writer.row(1), writer.row(30)])
    timeline = writer.path / ".hoodie" / ("timeline" if version > 6 else "")
    completed = sorted(
        file for file in timeline.iterdir() if file.suffix in {".commit", ".deltacommit"} and file.name[0] != "."
    )
    completed[-1].unlink()
    shutil.rmtree(writer.path / ".hoodie" / ".temp", ignore_errors=True)
    assert rows_of(source.drain()) == []
    # The next writer rolls it back before it writes.
    writer.write([writer.row(2)])
    applied(state, rows_of(source.drain()))
    assert state == content(hudi, writer.path)
    assert 30 not in state
