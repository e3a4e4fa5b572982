"""One type of rows in three formats, written by the serializers of others."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from struct import pack
from typing import Any

import orjson
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from caraway.compute.rows.calls import Conversion
from caraway.compute.rows.records import MappedRows, map_records
from caraway.dataplane.sources.decoding.protobuf_schemas import compile_file
from caraway.dataplane.sources.decoding.registry import RegisteredSchema
from caraway.dtypes.types import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    DecimalType,
    ListType,
    MapType,
    StructType,
    optional,
)
from caraway.dtypes.values import ROWS
from caraway.graph.connectors import WebhookConnector
from caraway.graph.sources import Cdc, SourceSpec
from tests.registry_server import RegistryServer
from tests.unit.graph.building import dataset

Row = Mapping[str, Any]
Write = Callable[[Row], bytes]

PLACE = StructType(name="Place", fields=(("lat", FLOAT), ("town", optional(STRING))))
DATASET = dataset(
    "Rows",
    {
        "n": INT,
        "x": optional(FLOAT),
        "s": STRING,
        "o": optional(STRING),
        "b": BOOL,
        "raw": BYTES,
        "day": DATE,
        "cost": optional(DecimalType(2)),
        "ns": ListType(of=INT),
        "m": MapType(of=FLOAT),
        "place": optional(PLACE),
        "color": STRING,
        "at": DATETIME,
    },
)
SOURCE = SourceSpec(connector=WebhookConnector(name="w", endpoint="e", retention_us=0), cdc=Cdc.APPEND, disorder_us=0)
AVRO = {
    "type": "record",
    "name": "caraway.tests.Row",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "x", "type": ["null", "double"]},
        {"name": "s", "type": "string"},
        {"name": "o", "type": ["null", "string"], "default": None},
        {"name": "b", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "cost", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}]},
        {"name": "ns", "type": {"type": "array", "items": "long"}},
        {"name": "m", "type": {"type": "map", "values": "double"}},
        {
            "name": "place",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Place",
                    "fields": [{"name": "lat", "type": "double"}, {"name": "town", "type": ["null", "string"]}],
                },
            ],
        },
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
PROTO = """
syntax = "proto3";
package caraway.tests;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";

message Other { int32 unused = 1; }
message Row {
  enum Color { RED = 0; BLUE = 1; }
  message Place { double lat = 1; optional string town = 2; }
  int64 n = 1;
  google.protobuf.DoubleValue x = 2;
  string s = 3;
  optional string o = 4;
  bool b = 5;
  bytes raw = 6;
  string day = 7;
  optional string cost = 8;
  repeated int64 ns = 9;
  map<string, double> m = 10;
  Place place = 11;
  Color color = 12;
  google.protobuf.Timestamp at = 13;
}
"""


def json_of(row: Row) -> dict[str, Any]:
    shown = {**row, "day": row["day"].isoformat(), "at": row["at"].isoformat()}
    if row["cost"] is not None:
        shown["cost"] = str(row["cost"])
    return shown


def write_json(row: Row) -> bytes:
    return orjson.dumps(json_of(row), default=lambda value: {"base64": b64(value)})


def b64(value: bytes) -> str:
    return b64encode(value).decode()


def avro_writer(client: SchemaRegistryClient) -> Write:
    serializer = AvroSerializer(client, orjson.dumps(AVRO).decode())
    context = SerializationContext("avro", MessageField.VALUE)

    def write(row: Row) -> bytes:
        found: bytes = serializer(dict(row), context)
        return found

    return write


def protobuf_writer(client: SchemaRegistryClient) -> Write:
    """Return what writes as Confluent's serializer does, which registers the compiled form of the schema."""
    message = message_class()
    serializer = ProtobufSerializer(message, client, {"use.deprecated.format": False})
    context = SerializationContext("protobuf", MessageField.VALUE)

    def write(row: Row) -> bytes:
        found: bytes = serializer(message_of(message, row), context)
        return found

    return write


def protobuf_text_writer(registry: RegistryServer) -> Write:
    """Return what writes with a schema that is registered as text, as it is by Java's serializers."""
    number = registry.add("protobuf-text", PROTO, "PROTOBUF")
    message = message_class()
    # The message is the second type of the file: a list of one index, 1, as signed numbers of variable length.
    return lambda row: pack(">bI", 0, number) + b"\x02\x02" + message_of(message, row).SerializeToString()


def message_class() -> Any:
    file = compile_file(RegisteredSchema(id=1, kind="PROTOBUF", text=PROTO))
    return GetMessageClass(file.message_types_by_name["Row"])


def message_of(message: Any, row: Row) -> Any:
    # Absent is what null is in JSON.
    shown = {name: value for name, value in json_of(row).items() if value is not None}
    shown["raw"] = b64(row["raw"])
    if row["place"] is not None:
        shown["place"] = {name: value for name, value in row["place"].items() if value is not None}
    # ParseDict takes no NaN.
    x = shown.pop("x", None)
    made = ParseDict(shown, message())
    if x is not None:
        made.x.value = x
    return made


def stored(rows: list[Any]) -> MappedRows:
    """Return rows as a dataset takes them."""
    return map_records(DATASET, SOURCE, rows, Conversion(manner=ROWS))


# The first and the last instant of rows; `datetimes` takes them without a time zone.
FIRST, LAST = (datetime(year, 1, 1, tzinfo=UTC).replace(tzinfo=None) for year in (1900, 2200))
# Avro has no characters that UTF-8 can't write; Protobuf's text has none either.
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ROWS_OF_ALL = st.fixed_dictionaries(
    {
        "n": st.integers(-(2**63), 2**63 - 1),
        "x": st.none() | _FLOATS,
        "s": _TEXT,
        "o": st.none() | _TEXT,
        "b": st.booleans(),
        "raw": st.binary(max_size=6),
        "day": st.dates(date(1800, 1, 1), date(2200, 1, 1)),
        "cost": st.none() | st.decimals(-(10**9), 10**9, places=2).map(Decimal),
        "ns": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
        "m": st.dictionaries(_TEXT, _FLOATS, max_size=3),
        "place": st.none() | st.fixed_dictionaries({"lat": _FLOATS, "town": st.none() | _TEXT}),
        "color": st.sampled_from(["RED", "BLUE"]),
        "at": st.datetimes(min_value=FIRST, max_value=LAST, timezones=st.just(UTC)),
    }
)
