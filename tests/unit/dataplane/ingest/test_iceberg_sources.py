"""Iceberg tables as sources: after any changes of a table, the dataset has the table's rows; each change comes once."""

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestamptzType

from caraway.dataplane.ingest.marks import expanded
from caraway.dataplane.sources.iceberg.reader import IcebergReader
from caraway.errors import UnavailableError
from caraway.graph.connectors import Connector, IcebergConnector
from caraway.graph.sources import Cdc
from caraway.graph.systems import IcebergSystem
from tests.effort import examples
from tests.unit.dataplane.sources import lake as lakes
from tests.unit.dataplane.sources.lake import EVENTS, EVERY_US, ROWS, chosen, keys_of, rows_of

SCHEMA = Schema(
    NestedField(1, "k", LongType()),
    NestedField(2, "text", StringType()),
    NestedField(3, "n", IntegerType()),
    NestedField(4, "part", StringType()),
    NestedField(5, "at", TimestamptzType()),
    NestedField(6, "other", StringType()),
)
BY_PART = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "part"))


def row(key: int, text: str = "a") -> dict[str, Any]:
    return {**lakes.row(key, text), "n": key, "other": "o"}


@dataclass
class Lake(lakes.Lake):
    """A table, and all that outlives a reader of it."""

    reads = IcebergReader
    format = "iceberg"

    prefix: str = "lake/db/rows/"
    by_catalog: bool = False

    def __post_init__(self) -> None:
        warehouse = self.folder / "lake"
        warehouse.mkdir()
        self.uri = f"sqlite:///{self.folder}/catalog.db"
        self.catalog = SqlCatalog("lake", uri=self.uri, warehouse=f"file://{warehouse}")
        self.catalog.create_namespace("db")

    def create(self, rows: Sequence[Mapping[str, Any]], spec: PartitionSpec = BY_PART, **properties: str) -> Table:
        self.catalog.create_table("db.rows", SCHEMA, partition_spec=spec, properties=properties)
        if rows:
            self.append(rows)
        return self.table

    @property
    def table(self) -> Table:
        return self.catalog.load_table("db.rows")

    def arrow(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        fields = {each.name for each in self.table.schema().fields}
        # The column "other" may have been renamed. A row that is written again with another value there has changed.
        others = [name for name in fields if name.startswith("other")]
        some = [
            {
                name: value
                for name, value in ({**dict.fromkeys(others, each.get("other")), **each}).items()
                if name in fields
            }
            for each in rows
        ]
        return pa.Table.from_pylist(some, self.table.schema().as_arrow())

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.table.append(self.arrow(rows))

    def create_empty(self) -> None:
        self.create([])

    def overwrite(self, *rows: Mapping[str, Any]) -> None:
        self.table.overwrite(self.arrow(rows))

    def grow(self) -> None:
        self.append([row(6)] if self.content() else [row(number) for number in range(6)])

    def change(self, kind: str, key: int, number: int) -> None:
        change(self, kind, key, number)

    @property
    def connector(self) -> Connector:
        if self.by_catalog:
            return IcebergConnector(system=IcebergSystem(name="lake", uri=self.uri), table="db.rows")
        return super().connector

    def content(self) -> list[dict[str, Any]]:
        return [chosen(each) for each in self.table.scan().to_arrow().to_pylist()]


class Replace(_OverwriteFiles):
    """A snapshot with the same rows in other files, as engines make them that compact tables."""

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        found = super()._summary(snapshot_properties or {})
        return found.model_copy(update={"operation": Operation.REPLACE})


def compact(table: Table) -> None:
    with table.transaction() as transaction:
        producer = Replace(Operation.OVERWRITE, transaction, table.io, None, {}, "main")
        for task in list(table.scan().plan_files()):
            producer.delete_data_file(task.file)
        for file in _dataframe_to_data_files(table.metadata, table.scan().to_arrow(), table.io):
            producer.append_data_file(file)
        producer.commit()


class DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class MergeOnRead(_OverwriteFiles):
    """A snapshot that marks rows as deleted, which `pyiceberg` reads but doesn't write."""

    deletes: Sequence[DataFile] = ()

    def _manifests(self) -> list[ManifestFile]:
        table = self._transaction.table_metadata
        path = f"{table.location}/metadata/{self.snapshot_id}-deletes.avro"
        with DeleteManifest(
            table.spec(), table.schema(), self._io.new_output(path), self.snapshot_id, "deflate"
        ) as writer:
            for file in self.deletes:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self.snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=file,
                    )
                )
        return [*super()._manifests(), writer.to_manifest_file()]


def mark_deleted(
    table: Table, keys: Sequence[int], *, content: DataFileContent = DataFileContent.POSITION_DELETES
) -> None:
    """Delete rows by position, as engines do in tables with `write.delete.mode=merge-on-read`."""
    with table.transaction() as transaction:
        producer = MergeOnRead(Operation.OVERWRITE, transaction, table.io, None, {}, "main")
        deletes: list[DataFile] = []
        for number, task in enumerate(table.scan().plan_files()):
            with table.io.new_input(task.file.file_path).open() as opened:
                rows = pq.read_table(opened).column("k").to_pylist()
            positions = [at for at, key in enumerate(rows) if key in keys]
            if not positions:
                continue
            path = f"{table.location()}/data/{producer.snapshot_id}-{number}-deletes.parquet"
            ids = {"file_path": b"2147483546", "pos": b"2147483545"}
            schema = pa.schema(
                [
                    pa.field("file_path", pa.string(), metadata={"PARQUET:field_id": ids["file_path"]}),
                    pa.field("pos", pa.int64(), metadata={"PARQUET:field_id": ids["pos"]}),
                ]
            )
            written = pa.table({"file_path": [task.file.file_path] * len(positions), "pos": positions}, schema)
            with table.io.new_output(path).create() as output:
                pq.write_table(written, output)
            made = DataFile.from_args(
                content=content,
                file_path=path,
                file_format=FileFormat.PARQUET,
                partition=Record(*task.file.partition._data),
                record_count=len(positions),
                file_size_in_bytes=1,
                equality_ids=[1] if content is DataFileContent.EQUALITY_DELETES else None,
            )
            made.spec_id = task.file.spec_id
            deletes.append(made)
        producer.deletes = deletes
        producer.commit()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


KEYS = st.integers(0, 8)
CHANGES = st.one_of(
    *(
        st.tuples(st.just(kind), KEYS)
        for kind in ("append", "update", "delete", "upsert", "overwrite", "compact", "widen", "add", "rename", "mark")
    )
)


def change(lake: Lake, kind: str, key: int, number: int) -> None:
    """Change the table; `number` is another one each time."""
    table = lake.table
    there = {each["k"]: each for each in table.scan().to_arrow().to_pylist()}
    match kind:
        case "append":
            lake.append([row(1000 + 10 * number + at) for at in range(key % 3 + 1)])
        case "update":
            some = [{**each, "text": each["text"] + "x"} for each in there.values() if each["k"] >= key]
            table.overwrite(lake.arrow(some), overwrite_filter=f"k >= {key}")
        case "delete":
            table.delete(f"k = {key}")
        case "upsert":
            # Several snapshots of one commit: the old row is deleted, and then two rows are added.
            some = lake.arrow([row(key, f"up{number}"), row(2000 + number)])
            table.overwrite(some, overwrite_filter=f"k in ({key}, {2000 + number})")
        case "overwrite":
            table.overwrite(lake.arrow([row(at, "over") for at in range(key)]))
        case "compact":
            compact(table)
        case "widen":
            with table.update_schema() as update:
                update.update_column("n", LongType())
        case "add":
            with table.update_schema() as update:
                update.add_column(f"more{number}", StringType())
        case "rename":
            names = [each.name for each in table.schema().fields if each.name.startswith("other")]
            with table.update_schema() as update:
                update.rename_column(names[0], f"other{number}")
        case _:
            if any(each >= key for each in there):
                mark_deleted(table, [each for each in there if each >= key])


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trace=st.lists(CHANGES, min_size=1, max_size=5), rows=st.integers(1, 5))
@example(trace=[("overwrite", 1), ("rename", 0), ("overwrite", 1)], rows=1)
def test_events_come_once_and_rows_that_were_only_rewritten_do_not_come_again(
    trace: list[tuple[str, int]], rows: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake = Lake(tmp_path_factory.mktemp("iceberg"), cdc=Cdc.APPEND, dataset=EVENTS)
    # Some rows are there twice, since events have no keys.
    lake.create([row(number // 2) for number in range(8)])
    found = rows_of(lake.drain(rows=rows))
    assert bag(found) == bag(lake.content())
    for number, (kind, key) in enumerate(trace):
        before = bag(lake.content())
        change(lake, kind, key, number)
        found = rows_of(lake.drain(rows=rows))
        assert bag(found) == bag(lake.content()) - before


def bag(rows: Sequence[Mapping[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted(chosen(each).items())) for each in rows)


def expire(table: Table, *snapshots: int) -> None:
    table.maintenance.expire_snapshots().by_ids(list(snapshots)).commit()


def test_columns_are_known_by_their_ids(tmp_path: Path) -> None:
    lake = Lake(tmp_path, cdc=Cdc.UPSERT)
    lake.create([row(1, "first")])
    with lake.table.update_schema() as update:
        update.delete_column("n")
        update.rename_column("other", "spare")
    with lake.table.update_schema() as update:
        # Another column of the same name, so the old values aren't its own.
        update.add_column("n", LongType())
        update.rename_column("text", "was_text")
    with lake.table.update_schema() as update:
        update.rename_column("spare", "text")
    lake.append([{**row(2), "n": 1 << 40, "text": "second"}])
    found = sorted(rows_of(lake.drain()), key=lambda each: each["k"])
    assert [(each["k"], each["n"], each["text"]) for each in found] == [(1, None, "o"), (2, 1 << 40, "second")]
    # The columns that were needed, and no others, are read.
    assert all(each.keys() == {each.name for each in ROWS.fields} for each in found)


def test_a_column_that_is_gone_is_an_error_until_it_is_back(lake: Lake) -> None:
    lake.create([row(1)])
    lake.drain()
    with lake.table.update_schema() as update:
        update.rename_column("text", "words")
        update.delete_column("n")
    for act in (lake.drain, lambda: lake.open().peek(1)):
        with pytest.raises(UnavailableError, match="no column text, which field text needs; columns: at, k, other, pa"):
            act()
    with lake.table.update_schema() as update:
        update.rename_column("words", "text")
    lake.append([row(4)])
    (change,) = rows_of(lake.drain())
    assert (change["after"]["k"], "n" in change["after"]) == (4, False)


def test_snapshots_that_have_expired_unread_are_an_error_with_its_remedy(lake: Lake) -> None:
    lake.create([row(1)])
    lake.drain()
    for key in (3, 4, 6):
        lake.append([row(key)])
    history = [each.snapshot_id for each in lake.table.metadata.snapshots]
    # One that was read may go.
    expire(lake.table, history[0])
    saved = lake.position
    assert [each["after"]["k"] for each in rows_of(lake.drain())] == [3, 4, 6]
    lake.position = saved
    expire(lake.table, history[1])
    with pytest.raises(
        UnavailableError, match=r"Iceberg table lake/db/rows: the snapshot .*snapshots have expired that.*raise"
    ):
        lake.drain()


def test_a_snapshot_that_expires_while_it_is_read_is_an_error(lake: Lake) -> None:
    lake.create([row(at) for at in range(6)])
    lake.first(1)
    first = lake.table.metadata.snapshots[0].snapshot_id
    lake.append([row(9)])
    expire(lake.table, first)
    with pytest.raises(UnavailableError, match=f"the snapshot {first} has expired before it"):
        lake.drain()


def test_removed_files_that_are_gone_are_an_error_with_its_remedy(lake: Lake) -> None:
    lake.create([row(3), row(6)])
    lake.drain()
    (data,) = [task.file.file_path for task in lake.table.scan().plan_files()]
    lake.table.delete("k = 3")
    Path(data.removeprefix("file://")).unlink()
    with pytest.raises(UnavailableError, match="is gone, as its snapshot has expired before"):
        lake.drain()


def test_a_table_that_was_rolled_back_or_made_anew_is_an_error(lake: Lake) -> None:
    lake.create([row(3)])
    first = lake.table.metadata.snapshots[0].snapshot_id
    lake.append([row(4)])
    lake.drain()
    lake.table.manage_snapshots().set_current_snapshot(first).commit()
    with pytest.raises(UnavailableError, match="or the table was replaced or rolled back"):
        lake.drain()


def test_the_first_read_is_that_of_one_snapshot_and_later_ones_are_changes(lake: Lake) -> None:
    lake.create([row(at) for at in range(4)])
    lake.seek()
    lake.table.delete("k = 0")
    lake.append([row(50)])
    assert [each["op"] for each in rows_of(lake.drain(rows=1))] == ["r"] * 4
    found = rows_of(lake.drain(rows=1))
    assert keys_of(found) == [("d", 0), ("c", 50)]
    deleted = lake.table.metadata.snapshots[1]
    assert found[0]["source"] == {"ts_ms": deleted.timestamp_ms}
    assert rows_of(lake.drain()) == []


def test_a_replaced_row_is_no_delete_and_a_key_that_changed_is_one(lake: Lake) -> None:
    lake.create([row(0), row(3), row(6)])
    lake.drain()
    lake.table.overwrite(lake.arrow([{**row(0), "text": "new"}, row(3), {**row(6), "k": 9}]))
    found = rows_of(lake.drain())
    assert keys_of(found) == [("d", 6), ("c", 0), ("c", 9)]


def test_deleted_positions_are_read_and_equality_deletes_are_refused(lake: Lake) -> None:
    lake.create([row(at) for at in range(9)])
    mark_deleted(lake.table, [0, 4])
    assert sorted(each["after"]["k"] for each in rows_of(lake.drain())) == [1, 2, 3, 5, 6, 7, 8]
    mark_deleted(lake.table, [4, 5])
    found = rows_of(lake.drain())
    assert keys_of(found) == [("d", 5)]
    mark_deleted(lake.table, [7], content=DataFileContent.EQUALITY_DELETES)
    with pytest.raises(UnavailableError, match="has equality deletes, which can't be read; let the writer"):
        lake.drain()


def test_a_table_that_is_not_in_its_catalog_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path, by_catalog=True)
    with pytest.raises(UnavailableError, match=r"Iceberg lake, table db\.rows: NoSuchTableError"):
        lake.open().peek(1)


def test_files_elsewhere_are_refused(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
    lake = Lake(tmp_path / "a")
    lake.create([row(1)])
    (tmp_path / "a" / "lake").rename(tmp_path / "b" / "lake")
    moved = copy(lake)
    moved.folder = tmp_path / "b"
    with pytest.raises(
        UnavailableError, match=r"its file file:.*/a/lake.* is elsewhere, so it isn't read; a table that"
    ):
        moved.open().peek(1)
    # A catalog may name files anywhere on the server's machine.
    (tmp_path / "b" / "lake").rename(tmp_path / "a" / "lake")
    moved.by_catalog, moved.folder = True, tmp_path / "c"
    with pytest.raises(UnavailableError, match="isn't in a folder that the server may use"):
        moved.open().peek(1)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("oracle://scott:tiger@host/db", "a catalog is in Postgres or MySQL, not in oracle"),
        ("nonsense", "uri is http.*for a REST catalog, or the URL of a database"),
        ("sqlite:////etc/catalog.db", "database /etc/catalog.db isn't in a folder that the server may use"),
        ("postgresql+psycopg://u:tiger@127.0.0.1:1/db", "OperationalError"),
        ("http://127.0.0.1:1", "ConnectionError"),
    ],
)
def test_a_catalog_that_can_not_be_opened_is_an_error_without_its_password(
    uri: str, message: str, tmp_path: Path
) -> None:
    lake = Lake(tmp_path, by_catalog=True)
    lake.uri = uri
    with pytest.raises(UnavailableError, match=message) as error:
        lake.open().peek(1)
    assert "tiger" not in str(error.value)


def test_runs_of_rows_are_the_marks_of_the_rows(lake: Lake) -> None:
    lake.create([row(3 * number) for number in range(9)])
    mark_deleted(lake.table, [9])
    (batch, *_) = lake.drain()
    assert batch.run is not None
    marks = [batch.mark(number) for number in range(len(batch.rows))]
    assert len(marks) == 8
    assert list(expanded(batch.run(0, 8))) == marks
    lake.append([row(30 * number) for number in range(4)])
    (batch, *_) = lake.drain()
    assert batch.run is not None
    assert batch.run(1, 4) == "1-0/1~3"
    assert batch.origin(3) == {
        "file": next(iter(lake.table.scan(row_filter="k = 90").plan_files())).file.file_path,
        "row": 4,
        "snapshot": lake.table.metadata.current_snapshot_id,
    }


def test_a_commit_of_several_snapshots_stays_one_when_the_log_of_metadata_is_cut(lake: Lake) -> None:
    lake.create([row(0), row(3)], BY_PART, **{"write.metadata.previous-versions-max": "1"})
    lake.drain()
    lake.table.overwrite(lake.arrow([{**row(0), "text": "new"}, row(3)]))
    opened = lake.seek()
    batch = opened.poll(rows=9, size=1 << 20, timeout_s=EVERY_US)
    assert batch is not None
    # The position behind the beginning is saved before its rows are read.
    assert (len(batch.rows), batch.is_fence) == (0, True)
    lake.position = batch.position
    for key in (6, 9, 12):
        lake.append([row(key)])
    found = rows_of(lake.drain())
    assert keys_of(found) == [("c", 0), ("c", 6), ("c", 9), ("c", 12)]
