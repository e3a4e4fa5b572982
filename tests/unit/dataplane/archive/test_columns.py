"""Records become rows of a Delta table, and these rows have the values of the records, to the bit."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dataplane.archive.store.columns import Encoder, columns_of, stored_values
from caraway.dataplane.archive.store.tables import ArchiveTable
from caraway.dataplane.topics.blocks import block_of
from caraway.dataplane.topics.codec import DELETE, PUT, RETRACT, RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.left_out import LeftOut
from caraway.dataplane.topics.reader import Message
from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING
from caraway.graph.plan.model import Column, RecordSchema
from tests.unit.expr.typed_values import SCHEMA, rows

COLUMNS = tuple(Column(name=name, dtype=dtype) for name, dtype in SCHEMA.items())
KEYLESS = RecordSchema(keys=(), columns=COLUMNS, timestamp="at", fingerprint=7)
KEYED = RecordSchema(
    keys=(Column(name="k", dtype=STRING),),
    columns=(Column(name="k", dtype=STRING), Column(name="x", dtype=FLOAT)),
    timestamp="at",
    fingerprint=8,
)
TIMES = st.integers(-2_000_000_000_000_000, 4_000_000_000_000_000)


def bits(values: Sequence[Any]) -> list[bytes]:
    return [msgspec.msgpack.encode(value, order="deterministic") for value in values]


ROWS = st.lists(st.tuples(TIMES, rows()), max_size=8)


def encoded(found: Sequence[tuple[int, dict[str, Any]]], size: int) -> pa.Table:
    """Return rows as they come from a topic with blocks of `size` records."""
    codec = RecordCodec(KEYLESS)
    values = [
        codec.encode_value(op=PUT, time_us=time, ingested_us=time + 1, row=[row[column.name] for column in COLUMNS])
        for time, row in found
    ]
    messages: list[Message] = [
        (None, block_of(values[start : start + size]), 0, number)
        for number, start in enumerate(range(0, len(values), size))
    ]
    return Encoder("t", columns_of(KEYLESS)).table(messages)


@given(ROWS, st.integers(1, 5))
def test_rows_of_all_types_become_columns_and_come_back_to_the_bit(found: list[Any], size: int) -> None:
    read = encoded(found, size).sort_by([("_offset", "ascending"), ("_number", "ascending")])
    assert bits(stored_values(read["at"], DATETIME)) == bits([time for time, _ in found])
    assert bits(stored_values(read["_ingested"], DATETIME)) == bits([time + 1 for time, _ in found])
    assert [*zip(read["_offset"].to_pylist(), read["_number"].to_pylist(), strict=True)] == [
        divmod(number, size) for number in range(len(found))
    ]
    for column in COLUMNS:
        expected = [row[column.name] for _, row in found]
        assert bits(stored_values(read[column.name], column.dtype)) == bits(expected), column


def test_deletes_and_retractions_keep_their_keys_identities_and_revisions(tmp_path: Path) -> None:
    codec, columns = RecordCodec(KEYED), columns_of(KEYED)

    def value(op: int, row: list[object] | None, rev: bytes | None = None) -> bytes:
        return codec.encode_value(op=op, time_us=5, ingested_us=6, row=row, record_id=b"i", rev=rev)

    key = codec.encode_key(["a"])
    messages: list[Message] = [
        (key, value(PUT, ["a", math.nan]), 1, 10),
        (b"\xc1caraway.marker", b"token", 1, 11),
        (key, value(DELETE, ["a", None], b"\x01"), 1, 12),
        (key, value(RETRACT, None), 1, 13),
        (key, value(RETRACT, ["a", -0.0]), 1, 14),
    ]
    table = ArchiveTable.opened(str(tmp_path), "a", columns.arrow, dataset="D")
    table.append(Encoder("t", columns).table(messages), {1: 15})
    read = table.read().sort_by("_offset").to_pydict()
    assert read["k"] == ["a"] * 4
    assert math.isnan(read["x"][0])
    assert math.copysign(1, read["x"][3]) == -1
    assert read["_op"] == [PUT, DELETE, RETRACT, RETRACT]
    assert read["_rev"] == [None, b"\x01", None, None]
    assert read["_id"] == [b"i"] * 4
    assert read["_offset"] == [10, 12, 13, 14]
    assert table.positions([0, 1]) == {0: 0, 1: 15}


def test_records_that_can_t_be_read_are_told_and_the_others_are_kept() -> None:
    codec = RecordCodec(KEYED)
    good = codec.encode_value(op=PUT, time_us=5, ingested_us=6, row=["a", 1.0])
    told: list[LeftOut] = []
    encoder = Encoder("t", columns_of(KEYED), told.extend)
    assert encoder.table([(b"", b"\x00", 0, 0), (b"", None, 0, 1), (codec.encode_key(["a"]), good, 0, 2)]).num_rows == 1
    assert [record.position for record in told] == [position_id(0, 0), position_id(1, 0)]


@pytest.mark.parametrize(
    ("names", "timestamp", "time", "op"),
    [
        (["a"], "at", "at", "_op"),
        (["_op", "_rev"], "at", "at", "__op"),
        (["a", "at"], "at", "_time", "_op"),
        (["_time", "at"], "at", "__time", "__op"),
        (["a"], "_op", "_op", "__op"),
    ],
)
def test_no_column_has_the_name_of_another_one(names: list[str], timestamp: str, time: str, op: str) -> None:
    columns = columns_of(
        RecordSchema(
            keys=(), columns=tuple(Column(name=name, dtype=INT) for name in names), timestamp=timestamp, fingerprint=1
        )
    )
    assert (columns.time, columns.op) == (time, op)
    assert len(set(columns.arrow.names)) == len(columns.arrow.names)
