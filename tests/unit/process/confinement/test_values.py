"""Tests that messages of users' functions take no more memory than the platform allows."""

import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.process.confinement import values
from caraway.process.confinement.values import memory_bytes, packed, unpacked, unpacked_flat


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
