"""Tests of Avro: what its logical types become, and records that are made to do harm."""

import tracemalloc
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import orjson
import pytest
from fastavro import parse_schema, schemaless_writer

from caraway.dataplane.sources.decoding.avro import MAX_MEMORY, avro_reader
from caraway.dataplane.sources.decoding.avro_schemas import compile_schema
from caraway.dataplane.sources.decoding.registry import RegisteredSchema
from caraway.errors import InvalidInputError


def registered(schema: Any, kind: str = "AVRO") -> RegisteredSchema:
    return RegisteredSchema(id=1, kind=kind, text=orjson.dumps(schema).decode())


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{n}", "type": of} for n, of in enumerate(fields)]}


def written(schema: Any, value: Any) -> bytes:
    stream = BytesIO()
    schemaless_writer(stream, parse_schema(schema), value)
    return stream.getvalue()


def read(schema: Any, value: bytes) -> dict[str, object]:
    return avro_reader(registered(schema))(value, 0)


AT = datetime(2024, 5, 1, 12, 30, 15, 123456, tzinfo=UTC)
LOCAL = AT.replace(tzinfo=None)
US = 1_714_566_615_123_456
CENT = {"precision": 6, "scale": 2, "logicalType": "decimal"}
DEBEZIUM = "io.debezium.time."

# The type of a field, its plain value, and what it becomes.
LOGICAL: list[tuple[Any, Any, Any]] = [
    ({"type": "int", "logicalType": "date"}, 19_844, date(2024, 5, 1)),
    ({"type": "long", "logicalType": "timestamp-millis"}, US // 1000, AT.replace(microsecond=123_000)),
    ({"type": "long", "logicalType": "timestamp-micros"}, US, AT),
    ({"type": "long", "logicalType": "timestamp-nanos"}, US * 1000 + 999, AT),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, US // 1000, LOCAL.replace(microsecond=123_000)),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, US, LOCAL),
    ({"type": "long", "logicalType": "local-timestamp-nanos"}, US * 1000, AT),
    ({"type": "int", "logicalType": "time-millis"}, 45_015_123, "12:30:15.123000"),
    ({"type": "long", "logicalType": "time-micros"}, 45_015_000_000, "12:30:15"),
    ({"type": "bytes", **CENT}, b"\xfe\x0c", Decimal("-5.00")),
    ({"type": "fixed", "size": 3, "name": "F", **CENT}, b"\x00\x00\x07", Decimal("0.07")),
    ({"type": "string", "logicalType": "uuid"}, "not-checked", "not-checked"),
    ({"type": "fixed", "size": 16, "name": "F", "logicalType": "uuid"}, UUID(int=7).bytes, str(UUID(int=7))),
    ({"type": "fixed", "size": 12, "name": "F", "logicalType": "duration"}, b"abcdefghijkl", b"abcdefghijkl"),
    ({"type": "long", "logicalType": "unheard-of"}, 7, 7),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    ({"type": "long", "connect.name": DEBEZIUM + "MicroTimestamp"}, US, AT),
    ({"type": "long", "connect.name": DEBEZIUM + "NanoTimestamp"}, US * 1000, AT),
    ({"type": "long", "connect.name": DEBEZIUM + "Timestamp"}, US // 1000, AT.replace(microsecond=123_000)),
    ({"type": "int", "connect.name": DEBEZIUM + "Date"}, 19_844, date(2024, 5, 1)),
    ({"type": "long", "connect.name": DEBEZIUM + "MicroTime"}, -45_015_000_000, "-12:30:15"),
    ({"type": "int", "connect.name": DEBEZIUM + "Time"}, 90_000_000, "25:00:00"),
    ({"type": "string", "connect.name": DEBEZIUM + "ZonedTimestamp"}, "2024-05-01T00:00:00Z", "2024-05-01T00:00:00Z"),
    (["null", {"type": "bytes", **CENT}], None, None),
    (["null", {"type": "bytes", **CENT}], b"\x01", Decimal("0.01")),
    (["string", "null", {"type": "bytes", **CENT}], b"\x01", Decimal("0.01")),
    (["string", "null", {"type": "bytes", **CENT}], "text", "text"),
    ({"type": "array", "items": {"type": "int", "logicalType": "time-millis"}}, [0, 1000], ["00:00:00", "00:00:01"]),
    ({"type": "map", "values": ["null", {"type": "bytes", **CENT}]}, {"a": b"\x02"}, {"a": Decimal("0.02")}),
]


def plain(schema: Any) -> Any:
    """Return a schema without logical types, so that the writer takes plain values."""
    if isinstance(schema, dict):
        return {key: plain(value) for key, value in schema.items() if key != "logicalType"}
    return [plain(value) for value in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize(("kind", "value", "expected"), LOGICAL)
def test_logical_types(kind: Any, value: Any, expected: Any) -> None:
    found = read(record(kind), written(plain(record(kind)), {"f0": value}))["f0"]
    assert (found, type(found)) == (expected, type(expected))


def test_a_decimal_of_any_scale() -> None:
    fields = [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]
    kind = {"type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data", "fields": fields}
    value = written(record(kind), {"f0": {"scale": 3, "value": b"\x30\x39"}})
    assert read(record(kind), value) == {"f0": Decimal("12.345")}


def test_records_in_a_union_are_told_apart_by_their_fields() -> None:
    time = {"type": "long", "logicalType": "time-micros"}
    a = {"type": "record", "name": "A", "fields": [{"name": "x", "type": time}]}
    b = {"type": "record", "name": "B", "fields": [{"name": "y", "type": time}, {"name": "x", "type": "long"}]}
    schema = record(["null", a, b], "B")
    value = written(plain(schema), {"f0": ("B", {"y": 1_000_000, "x": 5}), "f1": {"y": 0, "x": 6}})
    assert read(schema, value) == {"f0": {"y": "00:00:01", "x": 5}, "f1": {"y": "00:00:00", "x": 6}}


NODE = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "next", "type": ["null", "Node"]},
    ],
}


def test_a_type_may_contain_itself() -> None:
    value = written(plain(NODE), {"at": 0, "next": {"at": 1_000_000, "next": None}})
    assert read(NODE, value) == {"at": "00:00:00", "next": {"at": "00:00:01", "next": None}}


@pytest.mark.parametrize("depth", [65, 30_000, 1_000_000])
def test_a_type_that_nests_in_itself_too_deep_is_refused(depth: int) -> None:
    # fastavro's reader in C ends the process at such depths.
    with pytest.raises(InvalidInputError, match=r"deep|bytes"):
        read(NODE, b"\x00\x02" * depth + b"\x00\x00")


def number(value: int) -> bytes:
    return written("long", value)


ROW_OF_ONE_BIT = {"type": "record", "name": "Bit", "fields": [{"name": "b", "type": "boolean"}]}
MIB = 1024 * 1024
HARMFUL: list[tuple[Any, Callable[[], bytes]]] = [
    # Lengths and counts beyond what is there, and negative ones.
    (record("string"), lambda: number(2**62) + b"x"),
    (record("string"), lambda: number(-5) + b"x"),
    (record({"type": "array", "items": "long"}), lambda: number(2**62) + b"\x00"),
    (record({"type": "array", "items": "long"}), lambda: number(-(2**62)) + number(1) + b"\x00"),
    (record({"type": "map", "values": "null"}), lambda: number(2**60) + b"\x00"),
    # A number that never ends.
    (record("long"), lambda: b"\xff" * MIB),
    # Members and symbols that don't exist.
    (record(["null", "long"]), lambda: number(7)),
    (record(["null", "long"]), lambda: number(-1)),
    (record({"type": "enum", "name": "E", "symbols": ["A"]}), lambda: number(3)),
    # A decimal of so many digits takes minutes.
    (record({"type": "bytes", **CENT}), lambda: number(MIB) + b"\x7f" * MIB),
    # Instants that Python can't hold, and text that is none.
    (record({"type": "long", "logicalType": "timestamp-micros"}), lambda: number(2**62)),
    (record({"type": "long", "logicalType": "timestamp-nanos"}), lambda: number(2**62) + b"0"),
    (record("string"), lambda: number(1) + b"\xff"),
    # Two hundred times its length in memory.
    (record({"type": "array", "items": ROW_OF_ONE_BIT}), lambda: number(8 * MIB) + b"\x01" * 8 * MIB + b"\x00"),
]


@pytest.mark.parametrize(("schema", "value"), HARMFUL)
def test_harmful_records_are_refused_before_they_take_memory(schema: Any, value: Callable[[], bytes]) -> None:
    encoded = value()
    reader = avro_reader(registered(schema))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError):
            reader(encoded, 0)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(encoded) + MIB
    finally:
        tracemalloc.stop()


def doubling(levels: int) -> Any:
    """Return a type that contains two of a type that contains two of another, and so on: 2^levels empty ones."""
    fields: Any = []
    for level in range(levels):
        inner = {"type": "record", "name": f"R{level}", "fields": fields}
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"R{level}"}]
    return {"type": "record", "name": "Root", "fields": fields}


WRONG: list[tuple[Any, str]] = [
    (record({"type": "array", "items": "null"}), "elements take no bytes"),
    (record({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}), "elements take no bytes"),
    (doubling(40), "too much memory"),
    ("string", "is no record"),
    (record(), "is no record"),
    (record("Unknown"), "can't be read"),
    ({"type": "record"}, "can't be read"),
    (7, "can't be read"),
]


@pytest.mark.parametrize(("schema", "reason"), WRONG)
def test_schemas_that_make_no_rows(schema: Any, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^has the schema 1, which .*{reason}"):
        avro_reader(registered(schema))


def test_a_schema_that_is_no_json_or_no_avro() -> None:
    with pytest.raises(InvalidInputError, match="can't be read"):
        avro_reader(RegisteredSchema(id=1, kind="AVRO", text="{"))
    with pytest.raises(InvalidInputError, match="PROTOBUF, and the source's format is Avro"):
        avro_reader(registered({}, "PROTOBUF"))
    text = orjson.dumps(record("DEEP")).decode()
    for levels in (300, 900, 100_000):
        deep = '{"type":"array","items":' * levels + '"long"' + "}" * levels
        with pytest.raises(InvalidInputError, match=r"nests too deep|can't be read"):
            avro_reader(RegisteredSchema(id=1, kind="AVRO", text=text.replace('"DEEP"', deep)))


SHAPES: list[tuple[Any, Any]] = [
    (record({"type": "array", "items": ROW_OF_ONE_BIT}), {"f0": [{"b": n % 2 == 0} for n in range(20_000)]}),
    (record({"type": "map", "values": "long"}), {"f0": {f"{n}": n * 10**9 for n in range(20_000)}}),
    (record({"type": "array", "items": "string"}), {"f0": [f"{n}" for n in range(20_000)]}),
    (record({"type": "array", "items": {"type": "array", "items": "int"}}), {"f0": [[] for _ in range(20_000)]}),
    (record("string"), {"f0": "\N{OCTOPUS}" + "a" * 100_000}),
    (record("bytes"), {"f0": b"a" * 100_000}),
]


@pytest.mark.parametrize(("schema", "row"), SHAPES)
def test_rows_take_no_more_memory_than_estimated(schema: Any, row: Any) -> None:
    value = written(schema, row)
    reader = avro_reader(registered(schema))
    part = compile_schema(parse_schema(schema), {}).part
    tracemalloc.start()
    try:
        found = reader(value, 0)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert found == row
    assert taken < part.fixed + part.ratio * len(value)
    # The estimate isn't so high that it would refuse records in use.
    assert part.ratio * MIB < MAX_MEMORY


def test_bytes_that_are_left_over_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="2 bytes are left behind the row"):
        read(record("long"), number(1) + b"ab")
