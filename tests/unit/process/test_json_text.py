"""JSON text: the bounds that are counted before values are made hold, and the values are those of any parser."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caraway.errors import InvalidInputError, TooLargeError
from caraway.process import json_text
from caraway.process.json_text import MAX_DEPTH, check, parse

SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(alphabet='a"\\[]{},:é😀', max_size=6)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


def counted(value: Any) -> tuple[int, int, int]:
    """Return the number of values, the number of lists and objects, and the depth of a parsed value."""
    if not isinstance(value, (list, dict)):
        return 1, 0, 0
    inner = [counted(item) for item in (value.values() if isinstance(value, dict) else value)]
    values, containers = (sum(column) for column in list(zip(*inner, strict=True))[:2]) if inner else (0, 0)
    return 1 + values, 1 + containers, 1 + max((depth for _, _, depth in inner), default=0)


@given(value=VALUES, piece=st.integers(1, 9))
@example(value=["\\", "[", '"', ["\\\\"]], piece=1)
def test_nothing_is_counted_too_low(value: Any, piece: int) -> None:
    text = orjson.dumps(value)
    values, containers, depth = counted(value)
    with pytest.MonkeyPatch.context() as patch:
        # Every text is treated as a long one, which is counted piece by piece.
        patch.setattr(json_text, "SHORT_BYTES", 0)
        patch.setattr(json_text, "PIECE_BYTES", piece)
        shape = check(text)
    assert (shape.containers, shape.depth) == (containers, depth)
    # An empty list counts as if it had a value.
    assert values <= shape.values <= values + containers + 1
    assert check(text).values >= values


@given(value=VALUES)
def test_parts_make_the_same_values(value: Any) -> None:
    text = json.dumps([value, {"a": [value] * 3}]).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "PARTED_BYTES", 4)
        patch.setattr(json_text, "PART_ELEMENTS", 2)
        assert parse(text) == orjson.loads(text)


@pytest.mark.parametrize("padding", [0, json_text.SHORT_BYTES])
@pytest.mark.parametrize("before", ["", '"]"', '"\\"]",', '"\\\\",', '"\\"]\\"",'])
def test_deep_text_is_refused_whatever_strings_stand_before(before: str, padding: int) -> None:
    level = f"[{before}" if before.endswith(",") or not before else f"[{before},"
    deep = (level * (MAX_DEPTH + 1) + "1" + "]" * (MAX_DEPTH + 1)).encode() + b" " * padding
    assert counted(json.loads(deep))[2] == MAX_DEPTH + 1
    with pytest.raises(InvalidInputError, match=f"more than {MAX_DEPTH} levels"):
        parse(deep)
    shallow = (level * MAX_DEPTH + "1" + "]" * MAX_DEPTH).encode() + b" " * padding
    assert parse(shallow) == json.loads(shallow)


@pytest.mark.parametrize("unit", [b"[],", b"{},", b"1,", b'{"a":[1]},', b'"",'])
def test_too_many_values_are_refused_before_they_are_made(unit: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bytes] = []
    monkeypatch.setattr(json_text, "loads", made.append)
    with pytest.raises(TooLargeError, match="send the rows in several requests"):
        parse(b"[" + unit * 2_000_000 + b"0]")
    assert not made


def test_brackets_and_commas_in_strings_count_nothing() -> None:
    text = orjson.dumps(["[{," * 500_000, '"\\' * 1_000])
    assert parse(text) == orjson.loads(text)


@pytest.mark.parametrize("size", [10, json_text.PARTED_BYTES])
def test_the_position_of_an_error_is_reported(size: int) -> None:
    text = b'{"data": [' + b'{"a": 1}, ' * (size // 10) + b"nil]}"
    with pytest.raises(InvalidInputError, match=r"^isn't JSON: .* at line 1, column \d+"):
        parse(text)
