"""Tables take each record once, whoever writes, and lose those of erased keys."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from caraway.dataplane.archive.store.columns import Encoder, columns_of
from caraway.dataplane.archive.store.model import table_path
from caraway.dataplane.archive.store.storage import table_address
from caraway.dataplane.archive.store.tables import ArchiveTable, ReplacedError
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.dataplane.topics.erased_keys import HidesRecord
from caraway.dtypes.types import FLOAT, INT, STRING
from caraway.errors import UnavailableError
from caraway.graph.plan.model import Column, RecordSchema

NAME, NUMBER = Column(name="name", dtype=STRING), Column(name="number", dtype=INT)
SCHEMA = RecordSchema(
    keys=(NAME, NUMBER), columns=(NAME, NUMBER, Column(name="x", dtype=FLOAT)), timestamp="at", fingerprint=3
)
COLUMNS = columns_of(SCHEMA)
CODEC = RecordCodec(SCHEMA)


def key(number: int) -> bytes:
    return CODEC.encode_key([f"k{number}", number]) or b""


def records(numbers: Sequence[int]) -> pa.Table:
    """Return records of these keys, each at the offset of its number."""
    return Encoder("t", COLUMNS).table(
        [
            (
                key(number % 10),
                CODEC.encode_value(op=PUT, time_us=number, ingested_us=0, row=[f"k{number % 10}", number % 10, 0.5]),
                0,
                number,
            )
            for number in numbers
        ]
    )


def opened(folder: Path) -> ArchiveTable:
    return ArchiveTable.opened(str(folder), "archive/t/id", COLUMNS.arrow, dataset="T", statistics=COLUMNS.statistics)


def offsets(table: ArchiveTable) -> list[int]:
    return sorted(table.read(["_offset"])["_offset"].to_pylist())


def test_the_second_of_two_writers_is_refused_and_goes_on_behind_the_first(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    assert first.positions([0, 1]) == second.positions([0, 1]) == {0: 0, 1: 0}
    first.append(records(range(10)), {0: 10})
    with pytest.raises(ReplacedError):
        second.append(records(range(5)), {0: 5})
    again = opened(tmp_path)
    assert again.positions([0]) == {0: 10}
    again.append(records(range(10, 15)), {0: 15})
    again.append(records([]), {0: 16})
    first.refresh()
    assert first.positions([0]) == {0: 16}
    assert offsets(first) == list(range(15))
    assert first.size().rows == 15


def test_small_files_become_a_large_one_and_readers_may_finish(tmp_path: Path) -> None:
    table, reader = opened(tmp_path), opened(tmp_path)
    for number in range(12):
        table.append(records([number]), {0: number + 1})
    reader.refresh()
    assert table.size().files == 12
    assert table.compact() == 12
    assert table.size().files == 1
    assert table.positions([0]) == {0: 12}
    assert table.vacuum() == 0
    assert offsets(reader) == offsets(table) == list(range(12))
    assert table.vacuum(hours=0) == 12
    assert offsets(table) == list(range(12))
    # A table is never read by its files alone, so nothing depends on files that no entry of the log names.
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


def test_rows_of_erased_keys_are_removed_and_all_others_are_kept(tmp_path: Path) -> None:
    table = opened(tmp_path)
    for begin in range(0, 100, 25):
        table.append(records(range(begin, begin + 25)), {0: begin + 25})
    erased = {key(3), key(7)}
    hides = HidesRecord(erased.__contains__, None)
    assert table.remove(COLUMNS, hides) == 20
    assert offsets(table) == [number for number in range(100) if number % 10 not in (3, 7)]
    assert table.remove(COLUMNS, hides) == 0
    assert table.positions([0]) == {0: 100}
    assert table.remove(COLUMNS, HidesRecord(None, lambda row: row[1] == 4)) == 10
    assert offsets(table) == [number for number in range(100) if number % 10 not in (3, 4, 7)]
    table.vacuum(hours=0)
    # Neither a file nor the table's log, whose statistics leave keys out, has a trace of the key.
    assert b"k3" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_the_id_of_a_topic_is_one_folder() -> None:
    assert table_path("caraway.A.1", "a/b+c==") == "archive/caraway.A.1/a_b-c=="


@pytest.mark.parametrize(
    ("objects", "address", "options"),
    [
        ("/data/objects/", "/data/objects/t", {}),
        ("s3://bucket/prefix", "s3://bucket/prefix/t", {}),
        (
            "s3://bucket/prefix?endpoint_override=localhost:9000&scheme=http&region=eu",
            "s3://bucket/prefix/t",
            {"AWS_ENDPOINT_URL": "http://localhost:9000", "AWS_REGION": "eu", "AWS_ALLOW_HTTP": "true"},
        ),
        ("s3://b?endpoint_override=minio:9000", "s3://b/t", {"AWS_ENDPOINT_URL": "https://minio:9000"}),
        ("gs://bucket/p/", "gs://bucket/p/t", {}),
    ],
)
def test_an_object_store_has_the_same_place_in_both_libraries(
    objects: str, address: str, options: dict[str, str]
) -> None:
    assert table_address(objects, "t") == (address, options)


def test_a_store_that_can_t_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "archive").write_text("this is a file")
    with pytest.raises(UnavailableError, match=r"archive can't use the table .*archive/t/id"):
        opened(tmp_path)


def test_a_table_goes_back_to_where_its_topic_lost_records(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.append(records(range(10)), {0: 10, 1: 0}, {0: 4})
    table.append(records(range(10, 20)), {0: 20, 1: 0}, {0: 4})
    assert opened(tmp_path).epochs([0, 1]) == {0: 4}
    before = table.version
    assert table.go_back(COLUMNS.partition, COLUMNS.offset, {0: 15, 1: 0}) == 5
    table.append(COLUMNS.arrow.empty_table(), {0: 15, 1: 0}, {0: 4})
    # Both may be done again.
    assert table.go_back(COLUMNS.partition, COLUMNS.offset, {0: 15, 1: 0}) == 0
    again = opened(tmp_path)
    assert (again.positions([0]), again.epochs([0])) == ({0: 15}, {0: 4})
    again.append(records(range(15, 30)), {0: 30, 1: 0})
    # An epoch that isn't known replaces the former one.
    assert (again.positions([0]), again.epochs([0])) == ({0: 30}, {})
    assert offsets(again) == list(range(30))
    # The version before still has the rows, until its files are removed.
    old = DeltaTable(again.url, version=before)
    assert old.to_pyarrow_dataset().count_rows() == 20
