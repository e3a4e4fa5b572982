"""Bounds on the answers of tools."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.apps.mcp.sizes import MAX_BYTES, MAX_ROWS, check_rows, first_of, fitting
from caraway.errors import TooLargeError


@given(st.lists(st.integers(1, MAX_BYTES), max_size=20), st.integers(1, 20))
def test_the_first_items_fit_and_the_others_are_counted(lengths: list[int], limit: int) -> None:
    items = ["x" * length for length in lengths]
    found = first_of(items, limit, "rows")
    shown = found["rows"]
    assert shown == items[: len(shown)]
    assert len(shown) + found["more"] == len(items)
    assert len(shown) <= limit
    # Only a single item may be larger than an answer: otherwise an agent would see nothing of it.
    assert len(shown) <= 1 or len(orjson.dumps(shown)) <= MAX_BYTES + 2
    if items and len(shown) < min(limit, len(items)):
        assert len(orjson.dumps(items[: len(shown) + 1])) > MAX_BYTES


def test_a_large_answer_is_refused_with_a_remedy() -> None:
    assert fitting({"a": "x" * (MAX_BYTES - 10)}, "ask for less")
    with pytest.raises(TooLargeError, match=r"at most 48,000; ask for less"):
        fitting({"a": "x" * MAX_BYTES}, "ask for less")


def test_many_rows_are_refused() -> None:
    check_rows([{}] * MAX_ROWS, "lookup_rows")
    with pytest.raises(TooLargeError, match=r"lookup_rows takes at most 100 rows, not 101; .*training_set"):
        check_rows([{}] * (MAX_ROWS + 1), "lookup_rows")
