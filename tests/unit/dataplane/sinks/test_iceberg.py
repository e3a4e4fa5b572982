"""Iceberg tables that sinks write: they equal the dataset, have each batch once, and belong to one sink."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extensions
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from caraway.dataplane.objects import iceberg as catalogs
from caraway.dataplane.sinks import iceberg
from caraway.dataplane.sinks.iceberg import IcebergWriter, check
from caraway.dataplane.sinks.writer import Batch, SignIn
from caraway.errors import CommitError, UnavailableError
from caraway.graph.connectors import IcebergConnector
from caraway.graph.plan.model import SinkPlan
from caraway.graph.sources import SinkSpec
from caraway.graph.systems import IcebergSystem
from tests.effort import examples
from tests.unit.dataplane.sinks.table_contract import *  # noqa: F403 (the tests of the contract)
from tests.unit.dataplane.sinks.table_contract import BATCHES, check_batches, rows_of, values
from tests.unit.dataplane.sinks.world import change, plan_of, row, writing

TABLE = "db.p_main_v3"


class Lake:
    """A catalog in a folder, in which sinks write (`Place`)."""

    overtaken = "was written by another server"

    def __init__(self, folder: Path) -> None:
        self.move(folder)

    def move(self, folder: Path) -> None:
        self.uri = f"sqlite:///{folder}/catalog.db"
        self.catalog = SqlCatalog("lake", uri=self.uri, warehouse=f"file://{folder}/warehouse")
        self.folder = folder

    def plan(self, *, keyed: bool = True) -> SinkPlan:
        system = IcebergSystem(name="lake", uri=self.uri, warehouse=f"file://{self.folder}/warehouse")
        connector = IcebergConnector(system=system, table="db.p")
        sink = SinkSpec(connector=connector, how="incremental", create=True, every_us=1, renames=(("v", "value"),))
        return plan_of(sink=sink, keyed=keyed)

    def writer(
        self, plan: SinkPlan, name: str = "sink", product: Any = "caraway", *, keep: bool = True
    ) -> IcebergWriter:
        return IcebergWriter(writing(plan, name=name, product=product, keep=lambda: keep))

    @property
    def table(self) -> Table:
        return self.catalog.load_table(TABLE)

    def _read(self) -> list[dict[str, Any]]:
        return list(self.table.scan().to_arrow().to_pylist())

    def rows(self, *names: str) -> list[tuple[Any, ...]]:
        return rows_of(self._read(), names)

    def hashes(self, product: str) -> list[str]:
        return [each[f"__{product}_hash__"] for each in self._read()]

    def add_table(self) -> None:
        self.catalog.create_table("db.p_main_v4", pa.schema([("x", pa.int64())]))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Return a catalog in a folder, which sinks don't take outside of these tests."""
    made = Lake(tmp_path)

    def opened(*args: Any, **more: Any) -> Any:
        return catalogs.open_catalog(*args, **{**more, "local_folders": [str(made.folder)]})

    monkeypatch.setattr(iceberg, "open_catalog", opened)
    return made


def test_two_writers_that_commit_at_the_same_time_write_a_batch_once(
    place: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = place.plan()
    batch = [change("a", None, row("a", 1.0), 0)]
    place.writer(plan).write(Batch([change("z", None, row("z", 1.0), 0)], {0: 1}))
    slow, fast = place.writer(plan), place.writer(plan)
    replace_rows = slow._replace

    def overtaken(*args: Any, **kwargs: Any) -> None:
        replace_rows(*args, **kwargs)
        fast.write(Batch(batch, {0: 2}))

    # The other one commits when this one has written its files, and not its commit.
    monkeypatch.setattr(slow, "_replace", overtaken)
    with pytest.raises(UnavailableError, match="CommitFailed"):
        slow.write(Batch(batch, {0: 2}))
    assert values(place) == [("a", 1.0), ("z", 1.0)]
    assert place.writer(plan).positions() == {0: 2}


# Each example writes files, so that there are fewer than by default.
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES)
def test_batches_give_the_table_of_the_changes(
    batches: Sequence[Sequence[tuple[str, int | None]]], place: Lake, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place.move(tmp_path_factory.mktemp("tables"))
    check_batches(place, batches)


def test_each_batch_is_one_snapshot_that_appends_if_no_row_was_there(place: Lake) -> None:
    """Readers see all of a batch or nothing."""
    sink = place.writer(place.plan(keyed=False))
    for number, key in enumerate("ab"):
        changes = [change(f"{key}{n}", None, row(key, 1.0), number) for n in range(2)]
        sink.write(Batch(changes, {0: number + 1}))
    operations = [each.summary and each.summary.operation.value for each in place.table.metadata.snapshots]
    assert operations == ["append", "append"]


def test_the_position_outlives_the_snapshots_of_others_and_expiry(place: Lake) -> None:
    plan = place.plan()
    place.writer(plan).write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1}))
    (made,) = place.table.metadata.snapshots
    place.table.append(place.table.scan().to_arrow().slice(0, 0))
    assert place.writer(plan).positions() == {0: 1}
    place.table.maintenance.expire_snapshots().by_id(made.snapshot_id).commit()
    assert [each.snapshot_id for each in place.table.metadata.snapshots] != [made.snapshot_id]
    assert place.writer(plan).positions() == {0: 1}


def test_files_of_other_keys_stay_as_they_are(place: Lake) -> None:
    sink = place.writer(place.plan())
    sink.write(Batch([change(key, None, row(key, 1.0), number) for number, key in enumerate("ab")], {0: 2}))
    sink.write(Batch([change(key, None, row(key, 1.0), number) for number, key in enumerate("xy")], {0: 4}))
    before = {task.file.file_path for task in place.table.scan(row_filter="k = 'x'").plan_files()}
    sink.write(Batch([change("a", row("a", 1.0), row("a", 2.0), 4)], {0: 5}))
    assert {task.file.file_path for task in place.table.scan(row_filter="k = 'x'").plan_files()} == before
    # The rest of a file that is written anew goes to the file of the new rows.
    assert len(list(place.table.scan().plan_files())) == 2
    assert values(place) == [("a", 2.0), ("b", 1.0), ("x", 1.0), ("y", 1.0)]


def test_a_server_that_has_lost_the_right_to_write_does_not_commit(place: Lake) -> None:
    plan = place.plan()
    place.writer(plan).write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1}))
    with pytest.raises(UnavailableError, match="by another server now"):
        place.writer(plan, keep=False).write(Batch([change("a", row("a", 1.0), row("a", 2.0), 1)], {0: 2}))
    assert values(place) == [("a", 1.0)]


def test_duckdb_reads_the_table(place: Lake) -> None:
    sink = place.writer(place.plan())
    sink.write(Batch([change(key, None, row(key, 1.0, 3), number) for number, key in enumerate("abc")], {0: 3}))
    sink.write(Batch([change("a", row("a", 1.0, 3), None, 3), change("b", row("b", 1.0), row("b", 2.0), 4)], {0: 5}))
    database = duckdb.connect()
    for name in ("avro", "iceberg"):
        duckdb_extensions.import_extension(name, con=database)
        database.load_extension(name)
    path = place.table.metadata_location.removeprefix("file://")
    found = database.execute("SELECT k, value, n FROM iceberg_scan(?) ORDER BY k", [path]).fetchall()
    assert found == [("b", 2.0, None), ("c", 1.0, 3)]


def test_a_catalog_that_does_not_answer_is_an_error_at_the_commit(place: Lake) -> None:
    check(place.plan(), SignIn(resolve=str))
    place.uri = "postgresql+psycopg://u:tiger@127.0.0.1:1/db"
    with pytest.raises(CommitError, match="OperationalError") as error:
        check(place.plan(), SignIn(resolve=str))
    assert "tiger" not in str(error.value)


def test_tables_of_a_sink_are_not_in_folders_of_the_server(tmp_path: Path) -> None:
    place = Lake(tmp_path)
    with pytest.raises(CommitError, match="isn't in a folder that the server may use"):
        check(place.plan(), SignIn(resolve=str))
