"""Laws of change capture: what Debezium sends of a table makes a dataset equal to the table."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import orjson
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given

from caraway.compute.rows.batches import Stage
from caraway.compute.rows.cdc import CapturedChange, ChangeKind, map_envelopes
from caraway.dataplane.sources.decoding.formats import decoder_of
from caraway.dtypes.types import STRING
from caraway.expr import col, lit
from caraway.graph.functions import PythonFunction
from caraway.graph.sources import Computed, Constant, Ref, SourceSpec
from caraway.graph.systems import RegistryFormat, SchemaRegistry
from tests.registry_server import registry_server
from tests.unit.compute.rows import debezium_tables as tables

PLACEHOLDER = "__debezium_unavailable_value"


def held(changes: Sequence[CapturedChange]) -> dict[int, dict[str, Any]]:
    """Return the rows that hold at the end: of each key the latest version, which is the later one of two at a time."""
    versions: dict[Any, tuple[int, int, CapturedChange]] = {}
    for number, change in enumerate(changes):
        key, version = change.row["id"], (change.at_us, number, change)
        versions[key] = max(versions.get(key, version), version, key=lambda each: each[:2])
    return {key: of.row for key, (_, _, of) in versions.items() if of.kind is ChangeKind.INSERT}


def stored(table: tables.Table, source: SourceSpec) -> dict[int, dict[str, Any]]:
    """Return the rows of a table as a dataset with that source has them."""
    envelopes = [tables.with_schema({"op": "c", "before": None, "after": row}) for row in table.rows.values()]
    return held(map_envelopes(tables.DATASET, source, envelopes).changes)


def made(envelopes: Sequence[Any], source: SourceSpec) -> dict[int, dict[str, Any]]:
    mapped = map_envelopes(tables.DATASET, source, envelopes)
    assert mapped.errors == ()
    return held(mapped.changes)


POSITIVE = replace(tables.SOURCE, where=Computed(by=(col("level") > lit(0)).node))
WHOLE_PART = replace(
    POSITIVE, preproc=(("name", Constant(value="x", dtype=STRING)), ("id", Ref(path=("id",)))), where=POSITIVE.where
)


@pytest.mark.spec("connectors:6.4:u", "connectors:6.4:d", "connectors:6.4:c, r")
@pytest.mark.parametrize("source", [tables.SOURCE, POSITIVE, WHOLE_PART], ids=["plain", "where", "preproc"])
@given(trace=tables.traces())
def test_a_dataset_is_equal_to_the_table(source: SourceSpec, trace: tuple[tables.Table, list[tables.Captured]]) -> None:
    table, received = trace
    envelopes = [tables.with_schema(record.envelope) for record in received]
    assert made(envelopes, source) == stored(table, source)


@pytest.fixture(scope="module")
def avro() -> Iterator[Any]:
    """Return a function from envelopes to what they are after they were written in Avro and decoded."""
    with registry_server() as registry, SchemaRegistryClient({"url": registry.url}) as client:
        known = SchemaRegistry(format=RegistryFormat.AVRO, registry="confluent", url=registry.url)
        serializer = AvroSerializer(client, orjson.dumps(tables.AVRO).decode())
        context = SerializationContext("accounts", MessageField.VALUE)
        with closing(decoder_of(known, str)) as decoder:

            def through(envelopes: Sequence[Any]) -> list[Any]:
                written = [serializer(tables.in_avro(each), context) for each in envelopes]
                rows, faults = decoder.decode(written)
                assert faults == {}
                return rows

            yield through


@given(trace=tables.traces())
def test_envelopes_in_avro_make_the_same_changes(avro: Any, trace: tuple[tables.Table, list[tables.Captured]]) -> None:
    sent = [record.envelope for record in trace[1] if record.envelope is not None]
    in_json = map_envelopes(tables.DATASET, POSITIVE, [tables.with_schema(each) for each in sent])
    assert map_envelopes(tables.DATASET, POSITIVE, avro(sent)) == in_json


def row(**changed: Any) -> dict[str, Any]:
    return {"id": 1, "name": "a", "level": 1, "balance": "1.00", "updated_at": 100, **changed}


def envelope(op: str, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"ts_ms": 200_000}, "ts_ms": 200_500, **more}


def changes(*records: Any, source: SourceSpec = tables.SOURCE) -> list[tuple[str, int, dict[str, Any]]]:
    mapped = map_envelopes(tables.DATASET, source, records)
    assert mapped.errors == ()
    return [(change.kind, change.at_us, dict(change.row)) for change in mapped.changes]


def test_messages_that_change_no_row() -> None:
    notices = [
        {"ts_ms": 5},
        {"schema": {"type": "struct"}, "payload": {"ts_ms": 5}},
        {"status": "BEGIN", "id": "571:53195829", "ts_ms": 5, "event_count": None, "data_collections": None},
        {"source": {}, "ts_ms": 5, "databaseName": "shop", "ddl": "ALTER TABLE a", "tableChanges": []},
        envelope("m", message={"prefix": "p", "content": "YQ=="}),
        None,
    ]
    assert changes(*notices) == []
    (error,) = map_envelopes(tables.DATASET, tables.SOURCE, [envelope("t")]).errors
    assert (error.stage, "truncated" in error.message) == (Stage.ENVELOPE, True)


def test_the_block_of_a_transaction_is_left_aside() -> None:
    block = {"id": "571:53195829", "total_order": 1, "data_collection_order": 1}
    assert changes(envelope("c", None, row(), transaction=block)) == changes(envelope("c", None, row()))


def test_a_delete_has_the_most_exact_time() -> None:
    sources = [{"ts_ms": 7, "ts_us": 7_123, "ts_ns": 7_123_999}, {"ts_ms": 7, "ts_us": 7_123}, {"ts_ms": 7}, {}]
    times = [changes({**envelope("d", {"id": 1}), "source": source})[0][1] for source in sources]
    assert times == [7_123, 7_123, 7_000, 200_500_000]


def test_an_update_out_of_where_deletes_a_row_of_which_only_the_key_is_known() -> None:
    poor = row(level=0)
    deleted = [("delete", 200_000_000, {"id": 1})]
    assert changes(envelope("u", None, poor), source=POSITIVE) == deleted
    assert changes(envelope("u", {"id": 1}, poor), source=POSITIVE) == deleted
    empty = {"id": 1, "name": None, "level": 0, "balance": 0, "updated_at": 0}
    assert changes(envelope("u", empty, poor), source=POSITIVE) == deleted
    # The row before is known here, and wasn't admitted.
    assert changes(envelope("u", poor, poor), source=POSITIVE) == []


def test_a_delete_with_empty_columns_is_not_taken_for_its_row() -> None:
    empty = {"id": 1, "name": "", "level": 0, "balance": 0, "updated_at": "1970-01-01T00:00:00Z"}
    for balance in (0, 0.0, "", "AA==", None):
        assert changes(envelope("d", {**empty, "balance": balance}), source=POSITIVE) == [
            ("delete", 200_000_000, {"id": 1})
        ]


UNSENT: list[Any] = [
    PLACEHOLDER,
    "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
    PLACEHOLDER.encode(),
    [PLACEHOLDER],
    {PLACEHOLDER: PLACEHOLDER},
    list(PLACEHOLDER.encode()),
]


@pytest.mark.parametrize("unsent", UNSENT)
def test_values_that_were_not_sent_replace_none(unsent: Any) -> None:
    update = envelope("u", None, row(name=unsent))
    mapped = map_envelopes(tables.DATASET, tables.SOURCE, [update, envelope("u", None, row(id=2))])
    assert [change.row["id"] for change in mapped.changes] == [2]
    (error,) = mapped.errors
    assert (error.row, error.stage) == (0, Stage.ENVELOPE)
    assert "name" in error.message
    assert "REPLICA IDENTITY FULL" in error.message
    # The row before has it.
    whole = changes(envelope("u", row(name="long"), row(name=unsent)))
    assert whole == changes(envelope("u", row(name="long"), row(name="long")))
    # A row before the change in which it is missing shows only the key.
    deleted = changes(envelope("d", row(name=unsent, level=0)), source=POSITIVE)
    assert deleted == [("delete", 200_000_000, {"id": 1})]
    # A column that the dataset doesn't read.
    assert changes(envelope("u", None, row(notes=unsent))) == changes(envelope("u", None, row()))


def test_a_function_may_read_any_column_that_was_not_sent() -> None:
    function = PythonFunction(name="f", pickled=b"", source_code="f", includes=())
    source = replace(tables.SOURCE, where=Computed(by=function))
    (error,) = map_envelopes(tables.DATASET, source, [envelope("u", None, row(notes=PLACEHOLDER))]).errors
    assert "notes" in error.message


def test_times_of_day() -> None:
    kinds = {
        "io.debezium.time.Time": 3_600_000,
        "io.debezium.time.MicroTime": 3_600_000_000,
        "io.debezium.time.NanoTime": 3_600_000_000_000,
        "org.apache.kafka.connect.data.Time": 3_600_000,
    }
    for kind, value in kinds.items():
        columns = [{"field": "name", "type": "int64", "name": kind}]
        schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": columns}]}
        (change,) = changes({"schema": schema, "payload": envelope("c", None, row(name=value))})
        assert change[2]["name"] == "01:00:00"
