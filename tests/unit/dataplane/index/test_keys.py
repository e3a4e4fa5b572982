"""Keys of the index: the order of their bytes is the order of the entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dataplane.index.storage import keys
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.keys import MAX_INDEXED_BYTES, check_read
from caraway.errors import InvalidInputError

ASSET = b"\x00\xff\x10asset"
times = st.integers(-(2**63), 2**63 - 1)
ids = st.builds(position_id, st.integers(0, 2**63), st.integers(0, 100))


@given(st.tuples(times, ids), st.tuples(times, ids))
def test_aggregate_inputs_lie_in_order_of_time_and_identity(left: tuple[int, bytes], right: tuple[int, bytes]) -> None:
    prefix = keys.key_prefix(ASSET, b"key")
    assert (keys.timed_key(prefix, *left) < keys.timed_key(prefix, *right)) == (left < right)


@given(st.tuples(times, ids), st.tuples(times, ids))
def test_versions_lie_newest_first(left: tuple[int, bytes], right: tuple[int, bytes]) -> None:
    prefix = keys.key_prefix(ASSET, b"key")
    assert (keys.version_key(prefix, *left) < keys.version_key(prefix, *right)) == (left > right)


@given(times, times, ids)
def test_a_seek_finds_the_first_version_that_is_not_later(at_us: int, time_us: int, record_id: bytes) -> None:
    prefix = keys.key_prefix(ASSET, b"key")
    there = keys.version_key(prefix, time_us, record_id) >= keys.version_seek(prefix, at_us)
    assert there == (time_us <= at_us)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_no_key_s_entries_lie_among_those_of_another(left: bytes, right: bytes) -> None:
    if left != right:
        assert not keys.key_prefix(ASSET, left).startswith(keys.key_prefix(ASSET, right))


@given(st.binary(min_size=1, max_size=20).filter(lambda data: data.strip(b"\xff")), st.binary(max_size=5))
def test_after_a_prefix_comes_nothing_that_begins_with_it(prefix: bytes, rest: bytes) -> None:
    assert prefix + rest < keys.after(prefix)
    assert prefix + b"\xff" * 30 < keys.after(prefix)


def test_the_layout_is_that_of_the_contract() -> None:
    prefix = keys.key_prefix(ASSET, b"\x91\x07")
    record_id = position_id(258, 3)
    assert prefix == ASSET + b"\x00\x02\x91\x07"
    assert record_id == b"\x00\x00\x00\x00\x00\x00\x01\x02\x00\x00\x00\x03"
    assert keys.timed_key(prefix + keys.RAW, -1, record_id) == prefix + b"\x10\x7f" + b"\xff" * 7 + record_id
    assert keys.version_key(prefix, 0, b"\x0f\xf0") == prefix + b"\x01\x7f" + b"\xff" * 7 + b"\xf0\x0f"
    assert keys.timed_key(prefix + keys.ENDED, 0, b"\x01") == prefix + b"\x11\x80" + bytes(7) + b"\x01"
    assert keys.tile_key(prefix, 5, 7) == prefix + b"\x25" + bytes(7) + b"\x07"
    assert keys.location_key(ASSET, record_id) == ASSET + b"\xff\xff" + record_id


def test_the_longest_key_does_not_meet_the_locations() -> None:
    # These are the entries of the whole asset, in order.
    assert keys.OUTBOX < keys.DIRTY < keys.CHANGE_POINTS < keys.TIMES < keys.LOCATIONS
    assert keys.key_prefix(ASSET, b"\xff" * MAX_INDEXED_BYTES) < ASSET + keys.OUTBOX
    assert keys.times_key(ASSET, 2**63 - 1, b"\xff" * 20) < keys.location_key(ASSET, b"")
    with pytest.raises(InvalidInputError, match="65,530 bytes"):
        check_read(bytes(MAX_INDEXED_BYTES + 1))
