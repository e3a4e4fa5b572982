"""Files of served features: their names account for the offsets, their rows are those of the records."""

from io import BytesIO
from typing import Any

import orjson
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.served.archive import MAX_BYTES, MAX_ROWS, Gathered, file_name, parquet, positions, rows_of

RECORD = {
    "format": 1,
    "query": "q",
    "served_us": 1_700_000_000_000_000,
    "branch": "main",
    "commit": "c",
    "workflow": "w",
    "rows": [0, 4],
    "at_us": [1, 2],
    "inputs": {"A.x": [1, None]},
    "outputs": {"A.y": ["a", {"b": [1.5]}]},
}


def test_rows_become_a_file_that_others_can_read() -> None:
    rows = [*rows_of(orjson.dumps(RECORD), 2, 30), *rows_of(orjson.dumps({**RECORD, "at_us": 9}), 2, 31)]
    frame = pl.read_parquet(BytesIO(parquet(rows)))
    assert frame["row"].to_list() == [0, 4, 0, 4]
    assert frame["offset"].to_list() == [30, 30, 31, 31]
    assert [orjson.loads(text) for text in frame["inputs"][:2]] == [{"A.x": 1}, {"A.x": None}]
    assert [orjson.loads(text) for text in frame["outputs"][:2]] == [{"A.y": "a"}, {"A.y": {"b": [1.5]}}]
    assert frame["at"].dt.timestamp("us").to_list() == [1, 2, 9, 9]
    assert frame["served_at"].dt.timestamp("us").to_list() == [RECORD["served_us"]] * 4
    assert set(frame["workflow"]) == {"w"}


@pytest.mark.parametrize("data", [b"", b"3", b"{}", b"[]", orjson.dumps({**RECORD, "inputs": {"A.x": [1]}})])
def test_what_is_no_record_is_reported(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"(?i)record|unexpected|input"):
        list(rows_of(data, 0, 0))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**18), st.integers(1, 10**6)), max_size=20))
def test_names_tell_where_to_go_on(files: list[tuple[int, int, int]]) -> None:
    names = [file_name("id", "2024-01-01", partition, first, first + count) for partition, first, count in files]
    expected: dict[int, int] = {}
    for partition, first, count in files:
        expected[partition] = max(expected.get(partition, 0), first + count)
    assert positions([*names, "served-features/other.txt"]) == expected


@pytest.mark.parametrize(
    ("rows", "size", "age", "due"),
    [(1, 1, 1.0, False), (MAX_ROWS, 1, 1.0, True), (1, MAX_BYTES, 1.0, True), (1, 1, 60.0, True)],
)
def test_a_file_is_written_when_it_is_large_or_old(rows: int, size: int, age: float, due: bool) -> None:
    row: Any = ()
    gathered = Gathered(first=0, end=1, since=100.0, rows=[row] * rows, bytes=size)
    assert gathered.is_due(100.0 + age, 60.0) is due
