"""Tests that messages of users' functions take no more memory than the platform allows."""

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dataplane.confined import values as values_of_rows
from caraway.process.confinement import values
from caraway.process.confinement.values import check_keys, memory_bytes, packed, unpacked, unpacked_flat
from tests.unit.process.confinement.colliding import MODULUS, flood


@pytest.mark.parametrize("item", [b"\x90", b"\x80", b"\x81\xa0\x90", b"\xa1b", b"\xcb" + b"\x90" * 8])
def test_a_message_is_counted_before_its_values_are_made(item: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MOST_BYTES", 10 << 20)
    many = 2 * 10**6
    message = b"\xdd" + many.to_bytes(4) + item * many
    tracemalloc.start()
    try:
        with pytest.raises(EOFError, match="too many values"):
            unpacked(message)
        # No values were made.
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


MESSAGES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary() | st.dates(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=200,
)


@given(message=st.lists(MESSAGES, max_size=50))
def test_no_message_takes_more_memory_than_was_counted(message: list[object]) -> None:
    content = packed(message)
    assert _memory(unpacked(content)) <= memory_bytes(content)


def _memory(value: object) -> int:
    """Return the memory of a value and of the pointer to it, as if each value had an object of its own."""
    inner: list[object] = []
    match value:
        case list():
            inner = value
        case dict():
            inner = [*value, *value.values()]
        case None | bool():
            return 8
        case int() if -5 <= value <= 256:
            return 8
    # The size of a list or a dictionary has the pointers to its items.
    return 8 + sys.getsizeof(value) + sum(_memory(item) - 8 for item in inner)


def test_an_answer_of_bytes_has_no_lists() -> None:
    assert unpacked_flat(packed(["answer", b"\x90" * 10])) == ["answer", b"\x90" * 10]
    assert unpacked_flat(packed(["memory", None])) == ["memory", None]
    for other in (["answer", [1]], ["error", [1]], ["answer"], [["answer"], None], {"answer": None}, 7):
        with pytest.raises(EOFError):
            unpacked_flat(packed(other))


@pytest.mark.parametrize("unpack", [unpacked, values_of_rows.unpacked])
def test_keys_that_have_the_same_hash_are_in_no_dict(unpack: Callable[[bytes], Any]) -> None:
    """A dict of 20,000 of them (300 kB) would keep the server busy for four seconds, and one of 12 MB for an hour."""
    great = [hex(7 + number * MODULUS).encode() for number in range(16)]
    for extension in (1, 2):
        keys = b"".join(b"\xc7" + bytes([len(text), extension]) + text + b"\xc0" for text in great)
        for message in (flood(100), b"\xde" + len(great).to_bytes(2) + keys):
            with pytest.raises(EOFError, match="keys that aren't texts"):
                unpack(message)


KEYS = st.text(max_size=300) | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=3) | st.tuples(st.integers(0, 9))
NESTED = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text() | KEYS, inner, max_size=40),
    max_leaves=100,
)


def has_other_keys(value: object) -> bool:
    match value:
        case dict():
            return not all(isinstance(key, str) for key in value) or any(map(has_other_keys, value.values()))
        case list():
            return any(map(has_other_keys, value))
        case _:
            return False


@given(value=NESTED, extension=st.binary(max_size=300))
def test_keys_are_found_wherever_they_are(value: object, extension: bytes) -> None:
    # A dict of many items has all others looked at, too.
    message = [msgspec.msgpack.Ext(7, extension), value, {str(number): number for number in range(16)}]
    content = msgspec.msgpack.encode(message)
    if has_other_keys(value):
        with pytest.raises(EOFError, match="keys that aren't texts"):
            check_keys(content)
    else:
        check_keys(content)


def test_levels_are_counted_before_they_are_looked_through() -> None:
    with pytest.raises(EOFError, match="too many levels"):
        check_keys(b"\x91" * 1_000_000 + b"\xde")


LONG = (
    st.lists(st.none() | st.integers(), min_size=32)
    | st.lists(st.none() | st.floats(allow_nan=False), min_size=32)
    | st.lists(st.none() | st.text() | st.just("\ud800"), min_size=32)
)


@given(values=LONG)
def test_long_lists_come_back_as_they_were(values: list[object]) -> None:
    found = values_of_rows.unpacked(values_of_rows.packed(values))
    assert [(type(each), each) for each in found] == [(type(each), each) for each in values]
    if "\ud800" not in values:
        assert unpacked(packed(values)) == values
