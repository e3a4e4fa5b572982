"""Rows of served features: those of the log's records, in the columns of the table."""

import orjson
import pytest

from caraway.dataplane.archive.served_table import SCHEMA, rows_of, table_of

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


def test_records_become_rows_of_the_table() -> None:
    rows = [*rows_of(orjson.dumps(RECORD), 2, 30), *rows_of(orjson.dumps({**RECORD, "at_us": 9}), 2, 31)]
    found = table_of(rows).to_pydict()
    assert found["row"] == [0, 4, 0, 4]
    assert (found["_partition"], found["_offset"]) == ([2] * 4, [30, 30, 31, 31])
    assert [orjson.loads(text) for text in found["inputs"][:2]] == [{"A.x": 1}, {"A.x": None}]
    assert [orjson.loads(text) for text in found["outputs"][:2]] == [{"A.y": "a"}, {"A.y": {"b": [1.5]}}]
    assert [round(at.timestamp() * 1e6) for at in found["at"]] == [1, 2, 9, 9]
    assert {round(at.timestamp() * 1e6) for at in found["served_at"]} == {RECORD["served_us"]}
    assert set(found["workflow"]) == {"w"}
    assert table_of([]).schema == SCHEMA


@pytest.mark.parametrize("data", [b"", b"3", b"{}", b"[]", orjson.dumps({**RECORD, "inputs": {"A.x": [1]}})])
def test_what_is_no_record_is_reported(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"(?i)record|unexpected|input"):
        list(rows_of(data, 0, 0))
