"""Tests of envelopes of changes: their inserts and deletes."""

import base64
from dataclasses import replace
from typing import Any

import orjson
import pandas as pd
import pytest

from caraway.compute.rows.batches import Stage
from caraway.compute.rows.cdc import CapturedChange, ChangeKind, map_envelopes, typed_changes
from caraway.dtypes.types import BYTES, DATE, DATETIME, FLOAT, INT, STRING, DecimalType, optional
from caraway.errors import InvalidInputError
from caraway.expr import col, lit
from caraway.graph.connectors import WebhookConnector
from caraway.graph.sources import Cdc, Computed, Constant, Ref, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec

SOURCE = SourceSpec(
    connector=WebhookConnector(name="db", endpoint="users", retention_us=0), cdc=Cdc.DEBEZIUM, disorder_us=0
)
USERS = DatasetSpec(
    name="Users",
    version=1,
    history_us=0,
    fields=(
        FieldSpec(name="id", dtype=INT, key=True),
        FieldSpec(name="city", dtype=optional(STRING)),
        FieldSpec(name="age", dtype=INT),
        FieldSpec(name="at", dtype=DATETIME, timestamp=True),
    ),
    index=None,
)
EVENTS = replace(USERS, fields=tuple(replace(f, key=False) for f in USERS.fields))
S = 1_000_000


def row(key: int, city: str | None = "x", age: int = 1, at: int = 100) -> dict[str, Any]:
    return {"id": key, "city": city, "age": age, "at": at}


def stored(key: int, city: str | None = "x", age: int = 1, at: int = 100) -> dict[str, Any]:
    return row(key, city, age, at * S)


def envelope(op: str, before: Any = None, after: Any = None, ts_ms: int | None = 200_000, **source: Any) -> Any:
    return {"op": op, "before": before, "after": after, "ts_ms": ts_ms, "source": source}


def inserted(made: dict[str, Any], number: int = 0) -> CapturedChange:
    return CapturedChange(number=number, kind=ChangeKind.INSERT, row=made, at_us=made["at"])


def deleted(made: dict[str, Any], at: int, number: int = 0) -> CapturedChange:
    return CapturedChange(number=number, kind=ChangeKind.DELETE, row=made, at_us=at * S)


def changes(*records: Any, source: SourceSpec = SOURCE, dataset: DatasetSpec = USERS) -> list[CapturedChange]:
    mapped = map_envelopes(dataset, source, records)
    assert mapped.errors == ()
    return list(mapped.changes)


@pytest.mark.spec("connectors:6.4:c, r", "connectors:2.4:debezium")
@pytest.mark.parametrize("op", ["c", "r"])
def test_creates_and_snapshots_insert_what_is_after(op: str) -> None:
    assert changes(envelope(op, after=row(1))) == [inserted(stored(1))]


@pytest.mark.spec("connectors:6.4:u")
def test_an_update_replaces_the_row_of_its_key() -> None:
    assert changes(envelope("u", row(1), row(1, age=2, at=150))) == [inserted(stored(1, age=2, at=150))]
    # Some databases log only the key of the row before, or nothing of it.
    assert changes(envelope("u", {"id": 1}, row(1, age=2))) == [inserted(stored(1, age=2))]
    assert changes(envelope("u", None, row(1, age=2))) == [inserted(stored(1, age=2))]


@pytest.mark.spec("connectors:6.4:u")
def test_an_update_of_the_key_deletes_the_old_one() -> None:
    assert changes(envelope("u", row(1), row(2, at=150))) == [deleted(stored(1), 200), inserted(stored(2, at=150))]
    assert changes(envelope("u", {"id": 1}, row(2))) == [deleted({"id": 1}, 200), inserted(stored(2))]


@pytest.mark.spec("connectors:6.4:d")
def test_a_delete_takes_the_time_of_the_database() -> None:
    assert changes(envelope("d", row(1))) == [deleted(stored(1), 200)]
    assert changes({**envelope("d", row(1)), "source": {"ts_ms": 150_000}}) == [deleted(stored(1), 150)]
    assert changes(envelope("d", {"id": 1})) == [deleted({"id": 1}, 200)]


def test_a_delete_is_never_before_its_row() -> None:
    assert changes(envelope("d", row(1, at=900))) == [deleted(stored(1, at=900), 900)]


@pytest.mark.spec("connectors:6.4:t (truncate), m (message), unknown", "connectors:6.4:null message (tombstone)")
def test_what_is_no_change_of_a_row() -> None:
    mapped = map_envelopes(
        USERS,
        SOURCE,
        [
            None,
            envelope("m"),
            envelope("t"),
            envelope("x"),
            {"payload": None},
            {},
            envelope("d"),
            envelope("c"),
            {"op": "c", "after": 3},
            {"op": "d", "before": row(1)},
            envelope("d", {"city": "x"}),
        ],
    )
    assert mapped.changes == ()
    assert [(e.row, e.stage) for e in mapped.errors] == [
        (2, Stage.ENVELOPE),
        (3, Stage.ENVELOPE),
        (5, Stage.ENVELOPE),
        (6, Stage.ENVELOPE),
        (7, Stage.ENVELOPE),
        (8, Stage.ENVELOPE),
        (9, Stage.CDC),
        (10, Stage.CAST),
    ]
    assert "'t'" in mapped.errors[0].message
    assert mapped.errors[-1].field == "id"


@pytest.mark.spec("connectors:2.4:debezium")
def test_a_dataset_without_keys_takes_inserts_only() -> None:
    mapped = map_envelopes(
        EVENTS, SOURCE, [envelope("c", after=row(1)), envelope("u", row(1), row(1)), envelope("d", row(1))]
    )
    assert mapped.changes == (inserted(stored(1)),)
    assert [error.row for error in mapped.errors] == [1, 2]
    assert "keys" in mapped.errors[0].message


def test_envelopes_may_lie_under_payload_and_be_text() -> None:
    inner = envelope("c", after=row(1))
    assert changes({"payload": inner}) == [inserted(stored(1))]
    assert changes({"payload": orjson.dumps(inner)}) == [inserted(stored(1))]
    assert changes({**inner, "after": orjson.dumps(row(1)).decode()}) == [inserted(stored(1))]
    mapped = map_envelopes(USERS, SOURCE, [{"payload": "{"}])
    assert mapped.errors[0].stage is Stage.ENVELOPE


WANTED = replace(SOURCE, where=Computed(by=(col("age") > lit(0)).node))


def test_where_acts_on_both_sides() -> None:
    kept, dropped = row(1, age=1), row(1, age=0)
    assert changes(envelope("u", kept, dropped), source=WANTED) == [deleted(stored(1), 200)]
    assert changes(envelope("u", dropped, kept), source=WANTED) == [inserted(stored(1))]
    assert changes(envelope("u", dropped, dropped), source=WANTED) == []
    assert changes(envelope("d", dropped), source=WANTED) == []
    # The envelope doesn't show whether that row was admitted.
    assert changes(envelope("d", {"id": 1}), source=WANTED) == [deleted({"id": 1}, 200)]


def test_preproc_acts_on_both_sides() -> None:
    made = replace(SOURCE, preproc=(("id", Ref(path=("key",))), ("city", Constant(value="here", dtype=STRING))))
    after = {"key": 7, "age": 1, "at": 100}
    assert changes(envelope("c", after=after), source=made) == [inserted(stored(7, city="here"))]
    assert changes(envelope("d", {"key": 7}), source=made) == [deleted({"id": 7}, 200)]


def test_a_row_that_does_not_fit_is_an_error_of_its_record() -> None:
    mapped = map_envelopes(USERS, SOURCE, [envelope("c", after={**row(1), "age": "old"}), envelope("c", after=row(2))])
    assert mapped.changes == (inserted(stored(2), number=1),)
    assert [(e.row, e.stage, e.field) for e in mapped.errors] == [(0, Stage.CAST, "age")]


def described(**fields: dict[str, Any]) -> dict[str, Any]:
    inner = [{"field": name, **schema} for name, schema in fields.items()]
    return {
        "type": "struct",
        "fields": [{"field": side, "type": "struct", "fields": inner} for side in ("before", "after")],
    }


LOGICAL = [
    ("io.debezium.time.Date", "int32", 19_675, DATE, 19_675),
    ("io.debezium.time.Timestamp", "int64", 5_000, DATETIME, 5 * S),
    ("io.debezium.time.MicroTimestamp", "int64", 5_000_001, DATETIME, 5_000_001),
    ("io.debezium.time.NanoTimestamp", "int64", 5_000_001_999, DATETIME, 5_000_001),
    ("io.debezium.time.ZonedTimestamp", "string", "1970-01-01T01:00:05+01:00", DATETIME, 5 * S),
    ("org.apache.kafka.connect.data.Timestamp", "int64", 5_000, DATETIME, 5 * S),
    ("org.apache.kafka.connect.data.Date", "int32", 1, DATE, 1),
    ("", "bytes", base64.b64encode(b"ab").decode(), BYTES, b"ab"),
    ("", "double", 1.5, FLOAT, 1.5),
]


@pytest.mark.parametrize(("name", "kind", "value", "dtype", "expected"), LOGICAL)
def test_logical_types(name: str, kind: str, value: Any, dtype: Any, expected: Any) -> None:
    dataset = replace(USERS, fields=(*USERS.fields[:1], FieldSpec(name="value", dtype=dtype), USERS.fields[-1]))
    schema = described(id={"type": "int64"}, value={"type": kind, "name": name})
    record = {"schema": schema, "payload": envelope("c", after={"id": 1, "value": value, "at": 1})}
    (change,) = changes(record, dataset=dataset)
    assert change.row["value"] == expected


def test_decimals() -> None:
    dataset = replace(USERS, fields=(FieldSpec(name="id", dtype=DecimalType(2), key=True), USERS.fields[-1]))
    unscaled = base64.b64encode((-12345).to_bytes(3, "big", signed=True)).decode()
    fixed = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    variable = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
    for schema, value in ((fixed, unscaled), (variable, {"scale": 2, "value": unscaled})):
        record = {"schema": described(id=schema), "payload": envelope("c", after={"id": value, "at": 1})}
        assert changes(record, dataset=dataset)[0].row["id"] == "-123.45"
    wrong = {"schema": described(id=fixed), "payload": envelope("c", after={"id": "!", "at": 1})}
    (error,) = map_envelopes(dataset, SOURCE, [wrong]).errors
    assert (error.stage, "Decimal" in error.message) == (Stage.ENVELOPE, True)


def test_a_frame_of_envelopes() -> None:
    frame = pd.DataFrame([envelope("c", after=row(1)), envelope("d", row(1))])
    assert typed_changes(USERS, SOURCE, frame) == [inserted(stored(1)), deleted(stored(1), 200, number=1)]
    assert typed_changes(USERS, SOURCE, pd.DataFrame()) == []
    with pytest.raises(InvalidInputError, match="before, after, op"):
        typed_changes(USERS, SOURCE, pd.DataFrame([row(1)]))
    with pytest.raises(InvalidInputError, match=r"dataset Users.*field age, row 0"):
        typed_changes(USERS, SOURCE, pd.DataFrame([envelope("c", after={**row(1), "age": "old"})]))
