"""The columns and files of results."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from caraway.compute.query.model import TypedColumn
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dtypes.types import INT, optional
from caraway.errors import UnavailableError
from caraway.offline.queries.evaluation import Evaluated
from caraway.offline.queries.model import OfflineQuery, OfflineRequest, Part, Place, QueryStatus, StoredRows
from caraway.offline.queries.outputs import free_name, read_part, result_table, write_manifest, write_part
from caraway.offline.queries.places import place_of

OUTPUTS = (TypedColumn(name="A.x", dtype=optional(INT)), TypedColumn(name="A.y", dtype=None))


def query(**more: Any) -> OfflineQuery:
    asked = OfflineRequest(inputs=("A.k",), outputs=("A",), timestamp_column="at", rows=StoredRows("input.json"))
    values: dict[str, Any] = {
        "id": "q",
        "branch": "main",
        "commit": "c7",
        "account": "ann",
        "workflow": "w",
        "request": asked,
        "cuts": {"topic": {0: 5, 1: 7}},
        "status": QueryStatus.RUNNING,
        "cancelled": False,
        "rows": 4,
        "parts": (Part(2, 1), Part(1, 0)),
        "attempts": 0,
        "error": None,
        "asked_at": datetime(2024, 5, 1, tzinfo=UTC),
        "ended_at": None,
    }
    return OfflineQuery(**(values | more))


def evaluated() -> Evaluated:
    return Evaluated({"A.x": pa.array([1, None]), "A.y": pa.array(["a", None])}, [1_000_000, None], [None, "why"])


def test_features_come_first_then_the_time_the_other_columns_and_the_errors() -> None:
    table = result_table(OUTPUTS, evaluated(), "at", pa.table({"label": [1.5, 2.5]}), ["short", None])
    assert table.column_names == ["A.x", "A.y", "at", "label", "_history", "_error"]
    assert table.to_pylist() == [
        {
            "A.x": 1,
            "A.y": "a",
            "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            "label": 1.5,
            "_history": "short",
            "_error": None,
        },
        {"A.x": None, "A.y": None, "at": None, "label": 2.5, "_history": None, "_error": "why"},
    ]
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")


def test_the_columns_of_texts_take_no_names_of_the_input() -> None:
    others = pa.table({"_error": [0, 1], "__error": [2, 3]})
    table = result_table(OUTPUTS, evaluated(), "at", others, [None, None])
    assert table.column_names == ["A.x", "A.y", "at", "_error", "__error", "_history", "___error"]
    assert table["_error"].to_pylist() == [0, 1]
    assert table["___error"].to_pylist() == [None, "why"]
    assert free_name("_error", {}) == "_error"


@pytest.mark.parametrize("prefix", ["", "offline/q/output"])
def test_parts_and_the_manifest_are_files_of_the_folder(tmp_path: Path, prefix: str) -> None:
    objects = ObjectFolder(str(tmp_path))
    table = result_table(OUTPUTS, evaluated(), "at", pa.table({}), [None, None])
    write_part(objects, prefix, 3, table)
    write_part(objects, prefix, 3, table)
    write_manifest(objects, prefix, query(), OUTPUTS)
    assert sorted(stored.name for stored in objects.stored(prefix)) == [
        f"{prefix}/{name}".lstrip("/") for name in ("manifest.json", "part-00003.parquet")
    ]
    assert read_part(objects, prefix, 3).equals(table)
    assert pq.read_table(tmp_path / prefix / "part-00003.parquet").equals(table)
    with pytest.raises(UnavailableError):
        read_part(objects, prefix, 4)
    manifest = orjson.loads((tmp_path / prefix / "manifest.json").read_bytes())
    assert manifest["files"] == [
        {"name": "part-00000.parquet", "rows": 2, "rows_failed": 1, "rows_short": 0, "bytes": 0},
        {"name": "part-00001.parquet", "rows": 1, "rows_failed": 0, "rows_short": 0, "bytes": 0},
    ]
    assert (manifest["rows"], manifest["rows_failed"], manifest["commit"], manifest["branch"]) == (3, 1, "c7", "main")
    assert manifest["outputs"] == {"A.x": "Optional[int]", "A.y": None}
    assert manifest["read_up_to"] == {"topic": {"0": 5, "1": 7}}


def test_the_progress_as_clients_see_it() -> None:
    shown = query().answer("bucket", "prefix")
    assert (shown["completion_rate"], shown["failure_rate"]) == (3 / 4, 1 / 3)
    assert (shown["rows"], shown["rows_done"], shown["rows_failed"], shown["parts"]) == (4, 3, 1, 2)
    waiting = query(rows=None, parts=(), status=QueryStatus.WAITING).answer("bucket", "prefix")
    assert (waiting["completion_rate"], waiting["failure_rate"], waiting["rows"]) == (0.0, 0.0, None)


def test_the_place_of_results() -> None:
    assert place_of(query(), "/data/objects") == ("/data/objects", "offline/q/output")
    elsewhere = msgspec.structs.replace(query().request, output=Place(url="s3://b/p/q"))
    assert place_of(query(request=elsewhere), "/data/objects") == ("b", "p/q")
