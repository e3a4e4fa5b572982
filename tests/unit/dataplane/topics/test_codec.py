"""Records as bytes: the vectors that the Java codec must meet as well, and bytes that a reader refuses."""

import math
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dataplane.topics.codec import DELETE, PUT, RETRACT, RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.dtypes.types import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    BetweenType,
    DataType,
    DecimalType,
    EmbeddingType,
    ListType,
    MapType,
    OneOfType,
    RegexType,
    StructType,
    optional,
)
from caraway.errors import InvalidInputError
from caraway.graph.plan.model import Column, RecordSchema

POINT = StructType("Point", (("x", FLOAT), ("tag", STRING), ("z", optional(FLOAT))))


def codec(*columns: DataType, keys: int = 0) -> RecordCodec:
    named = tuple(Column(name=f"c{place}", dtype=dtype) for place, dtype in enumerate(columns))
    return RecordCodec(RecordSchema(keys=named[:keys], columns=named, timestamp="t", fingerprint=0xDEADBEEF))


@pytest.mark.parametrize(
    ("dtype", "value", "encoded"),
    [
        (INT, 0, "00"),
        (INT, 127, "7f"),
        (INT, 128, "cc80"),
        (INT, 256, "cd0100"),
        (INT, 65536, "ce00010000"),
        (INT, 2**32, "cf0000000100000000"),
        (INT, 2**63 - 1, "cf7fffffffffffffff"),
        (INT, -1, "ff"),
        (INT, -32, "e0"),
        (INT, -33, "d0df"),
        (INT, -129, "d1ff7f"),
        (INT, -(2**63), "d38000000000000000"),
        (FLOAT, 1.0, "cb3ff0000000000000"),
        (FLOAT, 1, "cb3ff0000000000000"),
        (optional(FLOAT), None, "c0"),
        (BetweenType(FLOAT, 0, 9), 2, "cb4000000000000000"),
        (BetweenType(INT, 0, 9), 2, "02"),
        (OneOfType(STRING, ("a", "b")), "a", "a161"),
        (RegexType("a+"), "aa", "a26161"),
        (BOOL, True, "c3"),
        (STRING, "é", "a2c3a9"),
        (STRING, "x" * 32, "d920" + "78" * 32),
        (BYTES, b"\x01", "c40101"),
        (DATETIME, 1_700_000_000_000_000, "cf00060a24181e4000"),
        (DATE, 19_000, "cd4a38"),
        (DecimalType(2), "1.50", "a4312e3530"),
        (ListType(FLOAT), [1, None, 2.5], "93cb3ff0000000000000c0cb4004000000000000"),
        (EmbeddingType(2), [1, 2], "92cb3ff0000000000000cb4000000000000000"),
        (MapType(INT), {"b": 1, "a": 2}, "82a16102a16201"),
        (MapType(FLOAT), {"b": 1}, "81a162cb3ff0000000000000"),
        (POINT, [1, "p", None], "93cb3ff0000000000000a170c0"),
        (ListType(POINT), [(1, "p", 2)], "9193cb3ff0000000000000a170cb4000000000000000"),
    ],
)
def test_values_have_one_form(dtype: DataType, value: Any, encoded: str) -> None:
    assert codec(dtype, keys=1).encode_key([value]) == bytes.fromhex("91" + encoded)
    row = codec(dtype).encode_value(op=PUT, time_us=0, ingested_us=0, row=[value])
    assert row == bytes.fromhex("9801cedeadbeef010000c0c091" + encoded)


@pytest.mark.parametrize(
    ("dtype", "value", "equal"),
    [
        (FLOAT, -0.0, 0),
        (optional(FLOAT), -0.0, 0.0),
        (FLOAT, struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0], math.nan),
        (ListType(FLOAT), [-0.0, None], [0.0, None]),
        (MapType(FLOAT), {"a": -0.0}, {"a": 0}),
        (POINT, [-0.0, "p", -0.0], [0.0, "p", 0.0]),
    ],
)
def test_equal_floats_of_keys_are_equal_bytes(dtype: DataType, value: Any, equal: Any) -> None:
    known = codec(dtype, keys=1)
    assert known.encode_key([value]) == known.encode_key([equal])


def test_a_row_keeps_the_sign_of_a_zero() -> None:
    encoded = codec(FLOAT).encode_value(op=PUT, time_us=0, ingested_us=0, row=[-0.0])
    assert encoded.hex().endswith("cb8000000000000000")


def test_a_record_has_one_form() -> None:
    data = codec(STRING, INT, keys=1).encode_value(
        op=DELETE, time_us=-1, ingested_us=300, record_id=position_id(1, 2), rev=b"\x07", row=["k", None]
    )
    assert data.hex() == "9801cedeadbeefffffcd012cc40c000000000000000100000002c4010792a16bc0"


def test_a_keyless_schema_has_no_key() -> None:
    assert codec(INT).encode_key([]) is None


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1), st.sampled_from([b"", b"\x00", b"\x01\x00"]))
def test_an_id_is_a_position(offset: int, partition: int, suffix: bytes) -> None:
    assert (position_id(offset, partition) + suffix).hex() == f"{offset:016x}{partition:08x}{suffix.hex()}"
    assert position_id(offset, partition) < position_id(offset + 1, 0)


@given(
    st.sampled_from([PUT, DELETE]),
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.binary(min_size=1, max_size=20),
    st.none() | st.binary(max_size=20),
    st.tuples(st.text(), st.none() | st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)),
)
def test_what_is_encoded_is_decoded(
    op: int, time_us: int, record_id: bytes | None, rev: bytes | None, row: tuple[Any, ...]
) -> None:
    known = codec(STRING, optional(INT), FLOAT, keys=1)
    data = known.encode_value(op=op, time_us=time_us, ingested_us=5, record_id=record_id, rev=rev, row=row)
    record = known.decode_value(data)
    assert (record.op, record.time, record.ingested, record.id, record.rev) == (op, time_us, 5, record_id, rev)
    assert record.row == list(row)
    assert known.decode_key(known.encode_key([row[0]]) or b"") == [row[0]]


GOOD = [1, 0xDEADBEEF, PUT, 0, 0, None, None, [1]]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "are no record"),
        (b"\xff", "are no record"),
        (b"{}", "are no record"),
        ([*GOOD, 1], "are no record"),
        (GOOD[:7], "are no record"),
        ([*GOOD[:3], "soon", *GOOD[4:]], "are no record"),
        ([*GOOD[:3], 2**63, *GOOD[4:]], "are no record"),
        ([2, *GOOD[1:]], "format 2"),
        ([1, 5, *GOOD[2:]], "schema 0x00000005"),
        ([*GOOD[:7], [1, 2]], "2 columns"),
        ([*GOOD[:7], None], "no row"),
    ],
)
def test_what_is_no_record_is_refused(value: Any, message: str) -> None:
    data = value if isinstance(value, bytes) else msgspec.msgpack.encode(value)
    with pytest.raises(InvalidInputError, match=message):
        codec(INT).decode_value(data)


def test_a_retraction_needs_no_row() -> None:
    data = msgspec.msgpack.encode([*GOOD[:2], RETRACT, *GOOD[3:7], None])
    assert codec(INT).decode_value(data).row is None


@pytest.mark.parametrize("value", [b"", b"\x01", msgspec.msgpack.encode([1, 2])])
def test_what_is_no_key_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidInputError):
        codec(INT, keys=1).decode_key(value)


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="1 columns can't be made of 2"):
        codec(INT).encode_value(op=PUT, time_us=0, ingested_us=0, row=[1, 2])
    with pytest.raises(InvalidInputError, match="1 columns can't be made of 0"):
        codec(INT, keys=1).encode_key([])
    with pytest.raises(InvalidInputError, match="no stored form"):
        codec(INT).encode_value(op=PUT, time_us=0, ingested_us=0, row=[2**64])
    with pytest.raises(InvalidInputError, match="no stored form"):
        codec(INT).encode_value(op=PUT, time_us=0, ingested_us=0, row=[object()])
