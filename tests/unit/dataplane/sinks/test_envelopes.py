"""Envelopes of changes: what consumers of Kafka and HTTP get."""

import base64
from dataclasses import replace
from typing import Any

import orjson
import pytest

from caraway.dataplane.sinks.changes import Change, Row, merged
from caraway.dataplane.sinks.envelopes import Envelopes, Product
from caraway.dtypes.types import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    DataType,
    DecimalType,
    ListType,
    MapType,
    optional,
)
from caraway.graph.plan.model import Column, SinkPlan
from tests.unit.dataplane.sinks.world import plan_of

COLUMNS: dict[str, DataType] = {
    "shop": STRING,
    "number": INT,
    "weight": FLOAT,
    "open": BOOL,
    "raw": BYTES,
    "day": DATE,
    "seen": DATETIME,
    "price": DecimalType(scale=2),
    "tags": ListType(INT),
    "scores": MapType(FLOAT),
    "note": optional(STRING),
}
STORED = ("tea", -3, 0.5, True, b"\0\xff", 20_000, 1_700_000_000_000_001, "12.50", [1, 2], {"a": 1.5}, None)
SHOWN = {
    "shop": "tea",
    "number": -3,
    "weight": 0.5,
    "open": True,
    "raw": base64.b64encode(b"\0\xff").decode(),
    "day": "2024-10-04",
    "seen": "2023-11-14T22:13:20.000001Z",
    "price": "12.50",
    "tags": [1, 2],
    "scores": {"a": 1.5},
    "note": None,
}


def plan(keys: int = 2) -> SinkPlan:
    """Return a plan with columns of all types."""
    columns = tuple(Column(name=name, dtype=dtype) for name, dtype in COLUMNS.items())
    made = plan_of()
    schema = replace(made.topic.schema, columns=columns, keys=columns[:keys])
    return replace(made, topic=replace(made.topic, schema=schema))


def payload(change: Change, product: Product = "caraway") -> dict[str, Any]:
    envelopes = Envelopes(plan(), "dev", product, clock=lambda: 1_700_000_000.25)
    envelope = orjson.loads(envelopes.value(change))
    assert envelope.keys() == {"payload"}
    found: dict[str, Any] = envelope["payload"]
    assert found.keys() == {"op", "before", "after", "ts_ms", "source"}
    return found


def row(time_us: int = 1_714_554_000_000_250, **changes: object) -> Row:
    return Row(time_us, tuple({**dict(zip(COLUMNS, STORED, strict=True)), **changes}.values()))


def change(before: Row | None, after: Row | None, offset: int = 17) -> Change:
    return Change(b"key", before, after, 1_714_554_000_001_999, 4, offset)


@pytest.mark.spec("connectors:4.2b:2", "connectors:4.2b:1")
def test_a_row_has_all_fields_in_json() -> None:
    shown = {**SHOWN, "at": "2024-05-01T09:00:00.000250Z"}
    created, deleted = payload(change(None, row())), payload(change(row(), None))
    assert (created["op"], created["before"], created["after"]) == ("c", None, shown)
    assert (deleted["op"], deleted["before"], deleted["after"]) == ("d", shown, None)
    updated = payload(change(row(), row(number=4)))
    assert (updated["op"], updated["before"], updated["after"]) == ("u", shown, {**shown, "number": 4})


@pytest.mark.spec("connectors:4.2b:1")
def test_a_deletion_and_an_insert_of_one_batch_are_one_update() -> None:
    (both,) = merged([change(row(), None, 16), change(None, row(number=4), 17)])
    found = payload(both)
    assert (found["op"], found["before"]["number"], found["after"]["number"]) == ("u", -3, 4)
    assert found["source"]["caraway"]["offset"] == 17


@pytest.mark.spec("connectors:4.2b:3", "connectors:4.2b:4", "connectors:4.2b:5")
@pytest.mark.parametrize("product", ["caraway", "fennel"])
def test_a_change_has_its_times_and_its_position(product: Product) -> None:
    found = payload(change(None, row()), product)
    assert found["ts_ms"] == 1_700_000_000_250
    assert found["source"] == {
        "ts_ms": 1_714_554_000_001,
        product: {"dataset": "Table", "version": 3, "branch": "dev", "partition": 4, "offset": 17},
    }


@pytest.mark.spec("connectors:4.2:1")
def test_the_key_of_a_message_has_the_key_fields() -> None:
    envelopes = Envelopes(plan(), "dev")
    for each in (change(None, row()), change(row(), None)):
        assert orjson.loads(envelopes.key(each) or b"") == {"shop": "tea", "number": -3}
    assert Envelopes(plan(0), "dev").key(change(None, row())) is None
