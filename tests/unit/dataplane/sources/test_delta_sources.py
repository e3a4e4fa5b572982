"""Delta tables as sources: after any changes of a table, the dataset has the table's rows; each change comes once."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import strategies as st

from caraway.dataplane.sources.delta import FEED, DeltaReader
from caraway.dtypes.types import DATETIME, INT, STRING
from caraway.errors import UnavailableError
from tests.unit.dataplane.sources import lake as lakes
from tests.unit.dataplane.sources.lake import row, rows_of
from tests.unit.graph.building import dataset

# The tables have no numbers, and the partition of a row may be missing though its field isn't optional.
ROWS = dataset("Rows", {"k": INT, "text": STRING, "part": STRING, "at": DATETIME}, keys=["k"])
SCHEMA = pa.schema([("k", pa.int64()), ("text", pa.string()), ("part", pa.string()), ("at", pa.timestamp("us", "UTC"))])


def table_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    return pa.Table.from_pylist([dict(each) for each in rows], SCHEMA)


def plain_row(key: int, text: str = "a") -> dict[str, Any]:
    # `load_cdf` doesn't find the files of partitions whose names are written with an escape.
    return row(key, text, "p")


class Lake(lakes.Lake):
    """A table, and all that outlives a reader of it."""

    reads = DeltaReader
    format = "delta"

    def __init__(self, folder: Path, **more: Any) -> None:
        super().__init__(folder, dataset=ROWS, **more)

    def create(self, rows: Sequence[Mapping[str, Any]], *, feed: bool = True) -> None:
        configuration = {FEED: "true"} if feed else {}
        write_deltalake(self.path, table_of(rows), partition_by=["part"], configuration=configuration)

    def create_empty(self) -> None:
        self.create([])

    def overwrite(self, *rows: Mapping[str, Any]) -> None:
        write_deltalake(self.path, table_of(rows), mode="overwrite")

    def change(self, kind: str, key: int, number: int) -> None:
        del number
        change(self.path, kind, key)

    def content(self) -> list[dict[str, Any]]:
        return [*content(self.path).values()]

    def grow(self) -> None:
        rows = [row(6)] if content(self.path) else [row(number) for number in range(6)]
        write_deltalake(self.path, table_of(rows), mode="append")


def content(path: Path) -> dict[int, dict[str, Any]]:
    rows = pa.table(DeltaTable(path).to_pyarrow_table()).to_pylist()
    return {each["k"]: each for each in rows}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


KEYS = st.integers(0, 8)
KINDS = ("update", "rename", "delete", "merge", "overwrite", "optimize")
CHANGES = st.one_of(
    st.tuples(st.just("append"), st.integers(9, 10**6)), *(st.tuples(st.just(kind), KEYS) for kind in KINDS)
)


def change(path: Path, kind: str, key: int, row: Callable[..., dict[str, Any]] = row) -> None:
    table = DeltaTable(path)
    match kind:
        case "append":
            if key not in content(path):
                write_deltalake(path, table_of([row(key)]), mode="append")
        case "update":
            table.update(predicate=f"k >= {key}", updates={"text": "concat(text, 'x')"})
        case "rename":
            if key + 10**9 not in content(path):
                table.update(predicate=f"k = {key}", updates={"k": "k + 1000000000"})
        case "delete":
            table.delete(f"k = {key}")
        case "merge":
            some = table_of([row(key, "merged"), row(key + 1, "merged")])
            merger = table.merge(some, "s.k = t.k", source_alias="s", target_alias="t")
            merger.when_matched_update_all().when_not_matched_insert_all().execute()
        case "overwrite":
            write_deltalake(path, table_of([row(n, "over") for n in range(key)]), mode="overwrite")
        case _:
            table.optimize.compact()


def test_the_feed_has_the_rows_that_deltalake_reads(lake: Lake) -> None:
    lake.create([plain_row(number) for number in range(6)])
    lake.drain()
    for kind, key in [("update", 3), ("merge", 5), ("append", 50), ("overwrite", 2), ("append", 51)]:
        change(lake.path, kind, key, plain_row)
    feed = pa.table(DeltaTable(lake.path).load_cdf(starting_version=1)).to_pylist()
    there = [each for each in feed if each["_change_type"] in {"insert", "update_postimage"}]
    names = set(SCHEMA.names)
    wanted = sorted((each["k"], each["text"], each["_commit_version"]) for each in there)
    found = lake.drain()
    changes = rows_of(found)
    origins = [batch.origin(number) for batch in found for number in range(len(batch.rows))]
    assert (
        sorted(
            (each["after"]["k"], each["after"]["text"], origin["version"])
            for each, origin in zip(changes, origins, strict=True)
            if each["after"]
        )
        == wanted
    )
    assert all(each["after"].keys() == names for each in changes if each["after"])
    commits = {entry["version"]: entry["timestamp"] for entry in DeltaTable(lake.path).history()}
    assert [each["source"]["ts_ms"] for each in changes] == [commits[origin["version"]] for origin in origins]
    # A key that was replaced, in whichever way, isn't deleted.
    assert {each["before"]["k"] for each in changes if each["op"] == "d"} == {2, 3, 4, 5, 6, 50}


def test_a_table_without_its_feed_is_refused(lake: Lake) -> None:
    lake.create([row(1)], feed=False)
    for act in (lake.seek, lambda: lake.open().peek(1)):
        with pytest.raises(UnavailableError, match=rf"doesn't record its changes; ALTER TABLE .*{FEED} = true"):
            act()


def test_a_table_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "data")
    Lake(tmp_path / "other").create([row(1)])
    lake.create([row(1)])
    (tmp_path / "data" / "link").symlink_to(tmp_path / "other")
    for prefix in ("../other/lake/rows", "link/lake/rows", "lake/../../other/lake/rows"):
        lake.prefix = prefix
        with pytest.raises(UnavailableError, match="leads out of the folder"):
            lake.seek()


def test_a_feed_that_is_gone_is_an_error_with_its_remedy(lake: Lake, tmp_path: Path) -> None:
    lake.create([row(1), row(3)])
    lake.drain()
    change(lake.path, "update", 1)
    change(lake.path, "append", 30)
    log = Path(lake.path, "_delta_log")
    data = next(Path(lake.path, "_change_data").rglob("*.parquet"))
    away = data.rename(tmp_path / "away")
    with pytest.raises(UnavailableError, match="VACUUM; raise the version of the dataset"):
        lake.drain()
    away.rename(data)
    # A checkpoint keeps the table readable without its older logs.
    DeltaTable(lake.path).create_checkpoint()
    (log / f"{1:020}.json").rename(tmp_path / "log")
    with pytest.raises(UnavailableError, match=r"the log of version 1 is gone.*raise the version of the dataset"):
        lake.drain()
    (tmp_path / "log").rename(log / f"{1:020}.json")
    assert len(rows_of(lake.drain())) == 3


def test_a_snapshot_stays_that_of_its_version(lake: Lake) -> None:
    lake.create([row(number) for number in range(4)])
    lake.seek()
    for kind, key in [("update", 0), ("overwrite", 2), ("append", 50)]:
        change(lake.path, kind, key)
    found = rows_of(lake.drain(rows=1))
    assert [(each["op"], each["after"]["text"]) for each in found[:4]] == [("r", "a")] * 4
    assert {each["op"] for each in found[4:]} == {"c", "u", "d"}
