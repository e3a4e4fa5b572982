"""Tests that Java's record codec writes the same bytes as Python's, and that every value is read back."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.codec import META, Codec
from caraway.dataplane.streams.spark.types import row_type
from caraway.dataplane.topics.blocks import block_of
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.markers import MARKER_KEY
from caraway.dtypes.types import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    DataType,
    EmbeddingType,
    ListType,
    MapType,
    StructType,
    optional,
)
from caraway.graph.plan.model import Column, RecordSchema
from tests.effort import examples

COLUMNS: dict[str, DataType] = {
    "a_long": INT,
    "a_text": STRING,
    "a_float": optional(FLOAT),
    "a_bool": optional(BOOL),
    "some_bytes": optional(BYTES),
    "at": optional(DATETIME),
    "day": optional(DATE),
    "vector": optional(EmbeddingType(2)),
    "list_": ListType(optional(INT)),
    "map_": MapType(FLOAT),
    "struct_": optional(StructType("S", (("x", INT), ("y", ListType(STRING)), ("z", optional(FLOAT))))),
}
# Floats in keys, also inside other values, have equal bytes if they are equal.
KEYS = ("a_long", "a_text", "a_float", "vector", "map_", "struct_")
SCHEMA = RecordSchema(
    keys=tuple(Column(name=name, dtype=COLUMNS[name]) for name in KEYS),
    columns=tuple(Column(name=name, dtype=dtype) for name, dtype in COLUMNS.items()),
    timestamp="event_at",
    fingerprint=0xFFFFFFFF,
)
MESSAGE = "key binary, topic string, partition int, offset long, value binary"
KAFKA = "key binary, value binary, partition int, offset long, number int"

LONGS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(
    [sign * (2**power) + delta for power in (5, 7, 8, 15, 16, 31, 32, 62) for sign in (1, -1) for delta in (-1, 0, 1)]
)
# Spark's UTF-8 has no lone surrogates, and neither has JSON that the server accepts.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
FLOATS = st.floats(allow_nan=False)
ROWS = st.tuples(
    LONGS,
    TEXTS,
    st.none() | FLOATS,
    st.none() | st.booleans(),
    st.none() | st.binary(max_size=300),
    st.none() | LONGS,
    st.none() | st.integers(-(10**6), 10**6),
    st.none() | st.lists(FLOATS, min_size=2, max_size=2),
    st.lists(st.none() | LONGS, max_size=20),
    st.dictionaries(TEXTS, FLOATS, max_size=20),
    st.none() | st.tuples(LONGS, st.lists(TEXTS, max_size=3), st.none() | FLOATS),
)
METAS = st.tuples(
    st.sampled_from([1, 0, -1]), LONGS, LONGS, st.none() | st.binary(min_size=1), st.none() | st.binary(min_size=1)
)

lots = settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))


@lots
@given(lot=st.lists(st.tuples(METAS, ROWS), min_size=50, max_size=80))
def test_what_python_wrote_is_read_and_written_as_the_same_bytes(spark: SparkSession, lot: Sequence[Any]) -> None:
    codec = RecordCodec(SCHEMA)
    key_positions = [list(COLUMNS).index(name) for name in KEYS]
    sent = []
    for position, ((op, time, ingested, identity, rev), row) in enumerate(lot):
        value = codec.encode_value(
            op=op, time_us=time, ingested_us=ingested, row=list(row), record_id=identity, rev=rev
        )
        sent.append((codec.encode_key([row[at] for at in key_positions]), value, 1, position, position % 3))
    kafka = spark.createDataFrame([(_array(k), _array(v), p, o, n) for k, v, p, o, n in sent], KAFKA).coalesce(1)
    java = Codec(spark)
    decoded = java.decode_records(kafka, SCHEMA)
    key_column, value_column = java.encoded(SCHEMA)
    written = decoded.select(key_column.alias("key"), value_column.alias("value")).collect()
    for (key, value, partition, offset, number), again in zip(sent, written, strict=True):
        record = codec.decode_value(value)
        identity = record.id or position_id(offset, partition, number)
        expected = codec.encode_value(
            op=record.op,
            time_us=record.time,
            ingested_us=record.ingested,
            row=record.row,
            record_id=identity,
            rev=record.rev,
        )
        assert bytes(again.key) == key
        assert bytes(again.value) == expected


@lots
@given(lot=st.lists(ROWS, min_size=20, max_size=40))
def test_payloads_of_operators_come_back(spark: SparkSession, lot: Sequence[Any]) -> None:
    row = row_type(COLUMNS.items())
    values = [[_array(v) if isinstance(v, bytes) else v for v in values] for values in lot]
    frame = spark.createDataFrame(values, row).coalesce(1)
    codec = Codec(spark)
    packed = codec.encode_row(row, [F.col(name) for name in COLUMNS])
    back = frame.select(codec.decode_row(packed, row).alias("r")).select("r.*")
    assert [_plain(r) for r in back.collect()] == [_plain(r) for r in frame.collect()]


@lots
@given(lot=st.lists(st.lists(ROWS, min_size=1, max_size=20), min_size=5, max_size=10))
def test_blocks_are_split_into_their_records(spark: SparkSession, lot: Sequence[Sequence[Any]]) -> None:
    codec = RecordCodec(SCHEMA)
    blocks = [[codec.encode_value(op=1, time_us=1, ingested_us=2, row=list(row)) for row in rows] for rows in lot]
    messages: list[Any] = [
        # A block of one record is one, too.
        (None, "t", 1, offset, bytearray(block_of(values)))
        for offset, values in enumerate(blocks)
    ]
    # These are no blocks: a single record, the value of a marker, and no value.
    token = b"\xdc\x00\x02" + bytes(13)
    others: list[Any] = [
        (None, "t", 1, 100, bytearray(blocks[0][0])),
        (bytearray(MARKER_KEY), "t", 1, 101, bytearray(token)),
        (None, "t", 1, 102, None),
    ]
    frame = Codec(spark).split(spark.createDataFrame(messages + others, MESSAGE).coalesce(1))
    found = [(r.offset, r.number, None if r.value is None else bytes(r.value)) for r in frame.collect()]
    assert found == [
        *((offset, number, value) for offset, values in enumerate(blocks) for number, value in enumerate(values)),
        (100, 0, blocks[0][0]),
        (101, 0, token),
        (102, 0, None),
    ]


@pytest.mark.parametrize("damaged", [b"\xdc\x00\x02\x01", b"\xdc\x00\x01\x01\x01", b"\xdc\x00\x01\xc1", b"\xdc"])
def test_a_damaged_block_fails_the_query_with_its_place(spark: SparkSession, damaged: bytes) -> None:
    frame = spark.createDataFrame([(None, "t", 3, 5, bytearray(damaged))], MESSAGE)
    with pytest.raises(Exception, match="block at partition 3, offset 5"):
        Codec(spark).split(frame).collect()


def test_a_retraction_without_a_row_has_its_key_from_kafka(spark: SparkSession) -> None:
    codec = RecordCodec(SCHEMA)
    value = codec.encode_value(op=0, time_us=1, ingested_us=2, row=None)
    kafka = spark.createDataFrame(
        [(_array(codec.encode_key([7, "k", None, None, {}, None])), _array(value), 0, 0, 0)], KAFKA
    )
    (row,) = Codec(spark).decode_records(kafka, SCHEMA).collect()
    assert (row.a_long, row.a_text, row.a_float, row["$op"]) == (7, "k", None, 0)
    assert set(META) <= set(row.asDict())


def test_a_record_of_another_schema_is_refused(spark: SparkSession) -> None:
    other = RecordSchema(keys=(), columns=SCHEMA.columns, timestamp="event_at", fingerprint=1)
    row = [1, "", None, None, None, None, None, None, [], {}, None]
    value = RecordCodec(other).encode_value(op=1, time_us=1, ingested_us=2, row=row)
    kafka = spark.createDataFrame([(None, _array(value), 3, 5, 0)], KAFKA)
    with pytest.raises(Exception, match=r"partition 3, offset 5.*has schema 1, this job reads schema 4294967295"):
        Codec(spark).decode_records(kafka, SCHEMA).collect()


def _array(value: bytes | None) -> bytearray | None:
    return None if value is None else bytearray(value)


def _plain(value: object) -> object:
    if isinstance(value, Row):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
