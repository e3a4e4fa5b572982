"""Tests of Protobuf: what its types become, the types of messages, imports, and records that are made to do harm."""

import tracemalloc
from base64 import b64encode
from decimal import Decimal
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from confluent_kafka.schema_registry.confluent.type import decimal_pb2
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

from caraway.dataplane.sources.decoding import protobuf_schemas
from caraway.dataplane.sources.decoding.protobuf import protobuf_reader
from caraway.dataplane.sources.decoding.protobuf_schemas import compile_file, message_at
from caraway.dataplane.sources.decoding.registry import RegisteredSchema
from caraway.errors import InvalidInputError

KINDS = """
syntax = "proto3";
package t;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";

message All {
  option (confluent.message_meta).doc = "all kinds of fields";
  enum Color { NONE = 0; RED = 1; }
  message Inner { int32 a = 1; All again = 2; }
  int64 plain = 1;
  optional int64 maybe = 2;
  repeated Color colors = 3;
  map<int32, Inner> numbered = 4;
  map<bool, string> by_truth = 5;
  oneof either { string text = 6; Inner inner = 7; }
  google.protobuf.Timestamp at = 8;
  google.protobuf.Int64Value wrapped = 9;
  google.protobuf.Struct free = 10;
  google.protobuf.Duration lasting = 11;
  confluent.type.Decimal cost = 12 [(confluent.field_meta) = { params: [{ key: "scale", value: "2" }] }];
  uint64 large = 13;
  bytes raw = 14;
  Color color = 15;
  float single = 16;
}
"""
ABSENT: dict[str, object] = {
    "plain": 0,
    "maybe": None,
    "colors": [],
    "numbered": {},
    "by_truth": {},
    "text": None,
    "inner": None,
    "at": None,
    "wrapped": None,
    "free": None,
    "lasting": None,
    "cost": None,
    "large": 0,
    "raw": b"",
    "color": "NONE",
    "single": 0.0,
}


def registered(text: str, *imports: tuple[str, str], kind: str = "PROTOBUF") -> RegisteredSchema:
    return RegisteredSchema(id=1, kind=kind, text=text, imports=imports)


@pytest.fixture(scope="module")
def kinds() -> Any:
    """Return the class of messages of all kinds, and what reads them."""
    schema = registered(KINDS)
    return GetMessageClass(message_at(compile_file(schema), [0])), protobuf_reader(schema)


def test_absent_fields(kinds: Any) -> None:
    _, read = kinds
    first, second = read(b"\x00", 0), read(b"\x00", 0)
    assert first == second == ABSENT
    assert first["colors"] is not second["colors"]


PRESENT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"maybe": 0}, {"maybe": 0}),
    ({"colors": ["RED", "NONE"]}, {"colors": ["RED", "NONE"]}),
    ({"numbered": {7: {"a": 1}}}, {"numbered": {"7": {"a": 1, "again": None}}}),
    ({"byTruth": {"true": "y"}}, {"by_truth": {"true": "y"}}),
    ({"text": ""}, {"text": ""}),
    ({"inner": {"a": 3}}, {"inner": {"a": 3, "again": None}}),
    ({"wrapped": 0}, {"wrapped": 0}),
    ({"free": {"a": [1, None, {"b": "c"}]}}, {"free": {"a": [1.0, None, {"b": "c"}]}}),
    ({"lasting": "1.5s"}, {"lasting": {"seconds": 1, "nanos": 500_000_000}}),
    ({"large": 2**64 - 1}, {"large": 2**64 - 1}),
    ({"color": 7}, {"color": 7}),
    ({"cost": {"value": "MDk=", "precision": 5, "scale": 2}}, {"cost": Decimal("123.45")}),
]


@pytest.mark.parametrize(("sent", "expected"), PRESENT)
def test_present_fields(kinds: Any, sent: Any, expected: Any) -> None:
    message, read = kinds
    assert read(b"\x00" + ParseDict(sent, message()).SerializeToString(), 0) == {**ABSENT, **expected}


def test_a_message_inside_itself(kinds: Any) -> None:
    message, read = kinds
    row = read(b"\x00" + ParseDict({"inner": {"again": {"plain": 5}}}, message()).SerializeToString(), 0)
    assert row["inner"]["again"] == {**ABSENT, "plain": 5}


def test_confluents_decimal_is_known_under_its_name() -> None:
    text = (Path(protobuf_schemas.__file__).parent / "protos/confluent/type/decimal.proto").read_text()
    ours = compile_file(registered(text)).message_types_by_name["Decimal"]
    theirs = decimal_pb2.DESCRIPTOR.message_types_by_name["Decimal"]
    assert ours.full_name == theirs.full_name
    assert [(f.name, f.number, f.type) for f in ours.fields] == [(f.name, f.number, f.type) for f in theirs.fields]


NESTED = """
syntax = "proto2";
message A { optional int32 a = 1; }
message B {
  map<string, int32> entries = 1;
  message C { required int32 c = 1; message D { optional int32 d = 1 [default = 9]; } }
  message E { optional int32 e = 1; }
}
"""


def test_the_type_of_a_message_is_a_path() -> None:
    read = protobuf_reader(registered(NESTED))
    assert read(b"\x00\x08\x01", 0) == {"a": 1}
    assert read(b"\x02\x00\x08\x01", 0) == {"a": 1}
    assert read(b"\x02\x02", 0) == {"entries": {}}
    assert read(b"\x04\x02\x00\x08\x05", 0) == {"c": 5}
    # A default of the schema isn't a value that was sent.
    assert read(b"\x06\x02\x00\x00", 0) == {"d": None}
    assert read(b"\x04\x02\x02\x08\x06", 0) == {"e": 6}
    # The dataset's own types say which fields must be there.
    assert read(b"\x04\x02\x00", 0) == {"c": None}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "ends within the indexes"),
        (b"\x80", "ends within the indexes"),
        (b"\xff" * 9, "they are too large"),
        (b"\x01", "-1 indexes"),
        (b"\xfe\xff\xff\xff\x0f", "2147483647 indexes"),
        (b"\x02\x06", r"no message type \[3\]"),
        (b"\x02\x01", r"no message type \[-1\]"),
        (b"\x04\x02\x08\x00", r"no message type \[1, 4\]"),
        (b"\x00\x08", "doesn't fit its schema 1"),
    ],
)
def test_a_wrong_type_or_message(value: bytes, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        protobuf_reader(registered(NESTED))(value, 0)


def test_schemas_may_import_others_as_text_or_compiled() -> None:
    a = 'syntax = "proto3"; package x; message A { int64 v = 1; }'
    b = 'syntax = "proto3"; package x; import public "deep/a.proto"; message B { A a = 1; }'
    main = """
        syntax = "proto3";
        import "b.proto";
        import "google/protobuf/timestamp.proto";
        message M { x.B b = 1; x.A a = 2; google.protobuf.Timestamp at = 3; }
    """
    imports = (("deep/a.proto", a), ("b.proto", b))
    texts = registered(main, *imports)
    compiled = {name: compiled_text(text, imports[:place]) for place, (name, text) in enumerate(imports)}
    mixed = registered(main, ("deep/a.proto", compiled["deep/a.proto"]), ("b.proto", b))
    all_compiled = registered(compiled_text(main, imports), *compiled.items())
    value = b"\x00\x0a\x04\x0a\x02\x08\x03\x12\x02\x08\x04"
    for schema in (texts, mixed, all_compiled):
        assert protobuf_reader(schema)(value, 0) == {"b": {"a": {"v": 3}}, "a": {"v": 4}, "at": None}


def compiled_text(text: str, imports: tuple[tuple[str, str], ...]) -> str:
    return b64encode(compile_file(registered(text, *imports)).serialized_pb).decode()


WRONG = [
    ("nonsense", "can't be compiled: the schema:1:1: Expected"),
    ('syntax = "proto3"; import "none.proto"; message M {}', "none.proto"),
    ('syntax = "proto3"; message M { Unknown u = 1; }', "Unknown"),
    ('syntax = "proto3";', "no message type"),
]


@pytest.mark.parametrize(("text", "reason"), WRONG)
def test_schemas_that_make_no_rows(text: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^has the schema 1, which .*{reason}"):
        protobuf_reader(registered(text))(b"\x00", 0)
    with pytest.raises(InvalidInputError, match="AVRO, and the source's format is Protobuf"):
        protobuf_reader(registered(text, kind="AVRO"))


@pytest.mark.parametrize("name", ["../up.proto", "/etc/passwd", "a/../../b.proto", "", "a\\b", "x\0y"])
def test_imports_are_written_nowhere_else(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    with pytest.raises(InvalidInputError, match="no path of a file"):
        compile_file(registered('syntax = "proto3";', (name, 'syntax = "proto3";')))
    assert [path.name for path in tmp_path.rglob("*")] == ["temp"]


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def test_a_message_that_nests_too_deep_is_refused(kinds: Any) -> None:
    _, read = kinds
    value = b""
    # Fields inner and again, by turns.
    for level in range(2_000):
        value = (b"\x3a" if level % 2 else b"\x12") + varint(len(value)) + value
    with pytest.raises(InvalidInputError, match="doesn't fit its schema"):
        read(b"\x00" + value, 0)


def test_a_message_of_many_values_is_refused_before_they_take_memory() -> None:
    fields = "".join(f"optional int64 f{n} = {n + 1};" for n in range(500))
    text = f'syntax = "proto3"; message M {{ repeated Wide wide = 1; }} message Wide {{ {fields} }}'
    read = protobuf_reader(registered(text))
    # Messages of two bytes, each of which would become a row of 500 nulls.
    value = b"\x00" + b"\x0a\x00" * 500_000
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError, match="more than 1,000,000 values"):
            read(value, 0)
        assert tracemalloc.get_traced_memory()[1] < 150 * 1024 * 1024
    finally:
        tracemalloc.stop()
    assert read(b"\x00" + pack(">BB", 0x0A, 0), 0) == {"wide": [dict.fromkeys(f"f{n}" for n in range(500))]}
