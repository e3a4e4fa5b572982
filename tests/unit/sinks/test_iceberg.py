"""Iceberg tables that sinks write: they equal the dataset, have each batch once, and belong to one sink."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extensions
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from caraway.errors import CommitError, UnavailableError
from caraway.graph.connectors import IcebergConnector
from caraway.graph.sources import SinkSpec
from caraway.graph.systems import IcebergSystem
from caraway.objects import iceberg as catalogs
from caraway.plan.model import SinkPlan
from caraway.sinks import iceberg
from caraway.sinks.changes import Change, Row
from caraway.sinks.iceberg import IcebergWriter, check
from caraway.sinks.writer import Batch, SignIn
from tests.effort import examples
from tests.unit.sinks.world import plan_of, writing

TABLE = "db.p_main_v3"


class Lake:
    """A catalog in a folder, in which sinks write."""

    def __init__(self, folder: Path) -> None:
        self.uri = f"sqlite:///{folder}/catalog.db"
        self.catalog = SqlCatalog("lake", uri=self.uri, warehouse=f"file://{folder}/warehouse")
        self.folder = folder

    def sink(self, **fields: Any) -> SinkSpec:
        system = IcebergSystem(name="lake", uri=self.uri, warehouse=f"file://{self.folder}/warehouse")
        connector = IcebergConnector(system=system, table="db.p")
        made = {"how": "incremental", "create": True, "every_us": 1, "renames": (("v", "value"),), **fields}
        return SinkSpec(connector=connector, **made)

    def plan(self, **fields: Any) -> SinkPlan:
        return plan_of(sink=self.sink(), **fields)

    @property
    def table(self) -> Table:
        return self.catalog.load_table(TABLE)

    def read(self) -> list[dict[str, Any]]:
        return sorted(self.table.scan().to_arrow().to_pylist(), key=lambda each: (each["k"], each["value"]))

    def values(self) -> list[tuple[str, float]]:
        return [(each["k"], each["value"]) for each in self.read()]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Return a catalog in a folder, which sinks don't take outside of these tests."""
    monkeypatch.setattr(iceberg, "open_catalog", partial(catalogs.open_catalog, local_folders=[str(tmp_path)]))
    return Lake(tmp_path)


def writer(plan: SinkPlan, name: str = "sink", product: Any = "caraway", *, keep: bool = True) -> IcebergWriter:
    return IcebergWriter(writing(plan, name=name, product=product, keep=lambda: keep))


def row(key: str, value: float, note: int | None = None, time: int = 1) -> Row:
    return Row(time, (key, value, note))


def change(key: str, before: Row | None, after: Row | None, offset: int) -> Change:
    return Change(key.encode(), before, after, 1, 0, offset)


def test_a_table_has_the_rows_and_the_positions_and_takes_a_batch_once(lake: Lake) -> None:
    plan = lake.plan()
    first = writer(plan)
    assert first.positions() == {}
    made = [change(key, None, row(key, 1.0), number) for number, key in enumerate("abc")]
    stale = writer(plan)
    first.write(Batch(made, {0: 3, 1: 0}))
    with pytest.raises(UnavailableError, match="was written by another server"):
        stale.write(Batch(made, {0: 3, 1: 0}))
    second = writer(plan)
    assert second.positions() == {0: 3, 1: 0}
    changed = [change("a", row("a", 1.0), None, 3), change("b", row("b", 1.0), row("b", 2.0, 5, 7), 4)]
    second.write(Batch([*changed, change("b", row("b", 2.0), row("b", 3.0), 5)], {0: 6, 1: 0}))
    assert lake.values() == [("b", 3.0), ("c", 1.0)]
    assert lake.read()[0].keys() == {"k", "value", "n", "at"}
    assert writer(plan).positions() == {0: 6, 1: 0}
    # Each batch is one snapshot, so that readers see all of it or nothing.
    assert len(lake.table.metadata.snapshots) == 2


def test_two_writers_that_commit_at_the_same_time_write_a_batch_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = lake.plan()
    batch = [change("a", None, row("a", 1.0), 0)]
    writer(plan).write(Batch([change("z", None, row("z", 1.0), 0)], {0: 1}))
    slow, fast = writer(plan), writer(plan)
    replace_rows = slow._replace

    def overtaken(*args: Any, **kwargs: Any) -> None:
        replace_rows(*args, **kwargs)
        fast.write(Batch(batch, {0: 2}))

    # The other one commits when this one has written its files, and not its commit.
    monkeypatch.setattr(slow, "_replace", overtaken)
    with pytest.raises(UnavailableError, match="CommitFailed"):
        slow.write(Batch(batch, {0: 2}))
    assert lake.values() == [("a", 1.0), ("z", 1.0)]
    assert writer(plan).positions() == {0: 2}


# Each example writes files, so that there are fewer than by default.
@settings(max_examples=examples(20), deadline=None)
@given(
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 3)), min_size=1, max_size=6),
        min_size=1,
        max_size=4,
    )
)
def test_batches_give_the_table_of_the_changes(
    batches: Sequence[Sequence[tuple[str, int | None]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(iceberg, "open_catalog", partial(catalogs.open_catalog, local_folders=[str(folder)]))
        lake = Lake(folder)
        sink, table, offset = writer(lake.plan()), dict[str, Row](), 0
        for batch in batches:
            changes = []
            for key, value in batch:
                before, after = table.get(key), None if value is None else row(key, float(value), time=offset)
                if before is not None or after is not None:
                    changes.append(change(key, before, after, offset))
                offset += 1
                if after is None:
                    table.pop(key, None)
                else:
                    table[key] = after
            sink.write(Batch(changes, {0: offset}))
        assert lake.values() == sorted((key, each.values[1]) for key, each in table.items())


@pytest.mark.parametrize("product", ["caraway", "fennel"])
def test_rows_without_keys_have_a_hash_that_tells_equal_rows_apart(lake: Lake, product: str) -> None:
    sink = writer(lake.plan(keyed=False), product=product)
    same = row("a", 1.0)
    sink.write(Batch([change("id1", None, same, 0), change("id2", None, same, 1)], {0: 2}))
    sink.write(Batch([change("id3", None, row("b", 1.0), 2)], {0: 3}))
    name = f"__{product}_hash__"
    assert len({each[name] for each in lake.read()}) == 3
    assert {each.summary.operation.value for each in lake.table.metadata.snapshots if each.summary} == {"append"}
    # A revision replaces the row, and a retraction removes it.
    sink.write(Batch([change("id1", same, row("a", 9.0), 3), change("id3", row("b", 1.0), None, 4)], {0: 5}))
    assert lake.values() == [("a", 1.0), ("a", 9.0)]


def test_a_new_sink_of_the_same_name_replaces_rows_and_columns_and_spares_tables_of_others(lake: Lake) -> None:
    plan = lake.plan()
    writer(plan).write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1}))
    renamed = replace(plan, sink=replace(lake.sink(), renames=(("v", "value"), ("n", "note"))))
    writer(renamed, "new").write(Batch([change("b", None, row("b", 2.0, 7), 0)], {0: 1}))
    (found,) = lake.read()
    assert (found["k"], found["value"], found["note"]) == ("b", 2.0, 7)
    assert found.keys() == {"k", "value", "note", "at"}
    lake.catalog.create_table("db.p_main_v4", pa.schema([("x", pa.int64())]))
    with pytest.raises(
        UnavailableError, match=r"table db\.p_main_v4 is there already, and no sink of Table has made it"
    ):
        writer(replace(plan, dataset=replace(plan.dataset, version=4)))


def test_the_position_outlives_the_snapshots_of_others_and_expiry(lake: Lake) -> None:
    plan = lake.plan()
    writer(plan).write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1}))
    (made,) = lake.table.metadata.snapshots
    lake.table.append(lake.table.scan().to_arrow().slice(0, 0))
    assert writer(plan).positions() == {0: 1}
    lake.table.maintenance.expire_snapshots().by_id(made.snapshot_id).commit()
    assert [each.snapshot_id for each in lake.table.metadata.snapshots] != [made.snapshot_id]
    assert writer(plan).positions() == {0: 1}


def test_changes_that_cancel_each_other_write_nothing(lake: Lake) -> None:
    sink = writer(lake.plan())
    sink.write(Batch([change("a", None, row("a", 1.0), 0), change("a", row("a", 1.0), None, 1)], {0: 2}))
    assert (lake.read(), sink.positions()) == ([], {})


def test_files_of_other_keys_stay_as_they_are(lake: Lake) -> None:
    sink = writer(lake.plan())
    sink.write(Batch([change(key, None, row(key, 1.0), number) for number, key in enumerate("ab")], {0: 2}))
    sink.write(Batch([change(key, None, row(key, 1.0), number) for number, key in enumerate("xy")], {0: 4}))
    before = {task.file.file_path for task in lake.table.scan(row_filter="k = 'x'").plan_files()}
    sink.write(Batch([change("a", row("a", 1.0), row("a", 2.0), 4)], {0: 5}))
    assert {task.file.file_path for task in lake.table.scan(row_filter="k = 'x'").plan_files()} == before
    # The rest of a file that is written anew goes to the file of the new rows.
    assert len(list(lake.table.scan().plan_files())) == 2
    assert lake.values() == [("a", 2.0), ("b", 1.0), ("x", 1.0), ("y", 1.0)]


def test_a_server_that_has_lost_the_right_to_write_does_not_commit(lake: Lake) -> None:
    plan = lake.plan()
    writer(plan).write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1}))
    with pytest.raises(UnavailableError, match="by another server now"):
        writer(plan, keep=False).write(Batch([change("a", row("a", 1.0), row("a", 2.0), 1)], {0: 2}))
    assert lake.values() == [("a", 1.0)]


def test_duckdb_reads_the_table(lake: Lake) -> None:
    sink = writer(lake.plan())
    sink.write(Batch([change(key, None, row(key, 1.0, 3), number) for number, key in enumerate("abc")], {0: 3}))
    sink.write(Batch([change("a", row("a", 1.0, 3), None, 3), change("b", row("b", 1.0), row("b", 2.0), 4)], {0: 5}))
    database = duckdb.connect()
    for name in ("avro", "iceberg"):
        duckdb_extensions.import_extension(name, con=database)
        database.load_extension(name)
    place = lake.table.metadata_location.removeprefix("file://")
    found = database.execute("SELECT k, value, n FROM iceberg_scan(?) ORDER BY k", [place]).fetchall()
    assert found == [("b", 2.0, None), ("c", 1.0, 3)]


def test_a_catalog_that_does_not_answer_is_an_error_at_the_commit(lake: Lake) -> None:
    check(lake.plan(), SignIn(resolve=str))
    lake.uri = "postgresql+psycopg://u:tiger@127.0.0.1:1/db"
    with pytest.raises(CommitError, match="OperationalError") as error:
        check(lake.plan(), SignIn(resolve=str))
    assert "tiger" not in str(error.value)


def test_tables_of_a_sink_are_not_in_folders_of_the_server(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with pytest.raises(CommitError, match="isn't in a folder that the server may use"):
        check(lake.plan(), SignIn(resolve=str))
