"""Blocks: the records of many rows in one message, with identities in the order of the rows."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dataplane.topics.blocks import MAX_BYTES, MAX_RECORDS, block_of, blocks_of, is_block, records_in, split
from caraway.dataplane.topics.codec import DELETE, PUT, RecordCodec
from caraway.dataplane.topics.identity import ID_BYTES, position_id, position_ids, spelled
from caraway.dtypes.types import INT, STRING
from caraway.errors import InvalidInputError
from caraway.graph.plan.model import Column, RecordSchema

COLUMNS = (Column(name="n", dtype=INT), Column(name="s", dtype=STRING))
CODEC = RecordCodec(RecordSchema(keys=(), columns=COLUMNS, timestamp="at", fingerprint=0xDEADBEEF))


def value(number: int, text: str = "", op: int = PUT) -> bytes:
    return CODEC.encode_value(op=op, time_us=number, ingested_us=1, row=[number, text])


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(max_size=40)), min_size=1, max_size=MAX_RECORDS))
def test_a_block_is_its_records(rows: list[tuple[int, str]]) -> None:
    values = [CODEC.encode_value(op=PUT, time_us=0, ingested_us=1, row=row) for row in rows]
    block = block_of(values)
    assert is_block(block)
    assert not any(map(is_block, values))
    assert records_in(block) == len(rows)
    assert split(block) == values
    assert [record.row for record in CODEC.decode_message(block)] == [[*row] for row in rows]


def test_a_record_is_no_block() -> None:
    assert [is_block(found) for found in (value(1), b"", None, b"\x98")] == [False] * 4
    assert [records_in(found) for found in (value(1), b"", None)] == [1, 1, 1]
    (decoded,) = CODEC.decode_message(value(1))
    record = CODEC.decode_value(value(1))
    assert all(getattr(decoded, name) == getattr(record, name) for name in record.__struct_fields__)


@given(st.lists(st.integers(0, MAX_BYTES + 1), max_size=3 * MAX_RECORDS))
def test_blocks_are_within_the_bounds_and_have_all_records_in_order(sizes: list[int]) -> None:
    values = [bytes(size) for size in sizes]
    slices = blocks_of(values)
    assert [v for found in slices for v in values[found]] == values
    for found in slices:
        some = values[found]
        assert 1 <= len(some) <= MAX_RECORDS
        # A record that is too large by itself is alone.
        assert len(some) == 1 or sum(map(len, some)) <= MAX_BYTES


@pytest.mark.parametrize(
    "damaged",
    [
        block_of([value(1), value(2)])[:-1],
        block_of([value(1), value(2)]) + b"\x00",
        block_of([value(1), b"\xc1"]),
        b"\xdc\x00",
        b"\xdc\xff\xff",
    ],
)
def test_a_damaged_block_is_refused(damaged: bytes) -> None:
    with pytest.raises(InvalidInputError, match="no block"):
        split(damaged)
    with pytest.raises(InvalidInputError):
        CODEC.decode_message(damaged)


def test_a_block_with_another_record_than_a_put_of_the_schema_is_refused() -> None:
    other = RecordCodec(RecordSchema(keys=(), columns=COLUMNS, timestamp="at", fingerprint=1))
    strange = other.encode_value(op=PUT, time_us=0, ingested_us=1, row=[1, ""])
    shorter = msgspec.msgpack.encode([1, 0xDEADBEEF, PUT, 0, 1, None, None, [1]])
    for wrong in (strange, shorter, value(1, op=DELETE)):
        with pytest.raises(InvalidInputError, match="no put"):
            CODEC.decode_message(block_of([value(1), wrong]))


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**16 - 1), st.integers(2, 300))
def test_identities_are_in_the_order_of_the_rows(offset: int, partition: int, count: int) -> None:
    ids = position_ids(offset, partition, count)
    assert ids == [position_id(offset, partition, number) for number in range(count)]
    assert ids == sorted(set(ids))
    assert {len(found) for found in ids} == {ID_BYTES}
    assert position_ids(offset, partition, 1) == ids[:1]
    if offset < 2**63 - 1:
        assert ids[-1] < position_id(offset + 1, 0)


def test_a_position_is_spelled_for_people() -> None:
    assert (spelled(position_id(41, 3)), spelled(position_id(41, 3, 7))) == ("3@41", "3@41+7")
