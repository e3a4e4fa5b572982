import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.expr.functions.json_path import parse_path
from caraway.expr.functions.json_text import DEEPEST, extract, json_text, load_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.spec("types:12.2.3:3")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a\\u00e9\\n\\"b"', 'aé\n"b'),
        ('""', ""),
        ("1.50", "1.5"),
        ("1.0", "1.0"),
        ("1e20", "1e20"),
        ("-0", "0"),
        ("-0.0", "-0.0"),
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "9.223372036854776e18"),
        ("true", "true"),
        ("false", "false"),
        ("null", None),
        (' { "a" : [ 1 , "x/\\u00e9" ] , "b" : null } ', '{"a":[1,"x/é"],"b":null}'),
        ("[1e-7, 100000000000000000000]", "[1e-7,1e20]"),
        ('{"a": 1, "a": 2}', '{"a":2}'),
    ],
)
def test_what_is_found_as_text(text: str, expected: str | None) -> None:
    assert extract(parse_path("$"), text) == expected


@pytest.mark.spec("types:12.2.3:4")
@pytest.mark.parametrize(
    "text", ["", " ", "{", "nul", "[1, 2", "NaN", "1e400", '"\\ud800"', "'a'", "[1,]", '{"b": 1}', '{"a": null}']
)
def test_what_gives_null(text: str) -> None:
    assert extract(parse_path("$.a"), text) is None


def test_documents_have_a_greatest_depth() -> None:
    deepest = "[" * DEEPEST + "]" * DEEPEST
    assert json_text(load_json(deepest)) == deepest
    assert extract(parse_path("$..[?(@ == 1)]"), deepest) is None
    with pytest.raises(ValueError, match="more than 200 levels"):
        load_json(f"[{deepest}]")
    # The document has many lists, but isn't deep.
    assert len(load_json("[" + "[]," * 300 + "[]]")) == 301


@given(value=VALUES)
def test_spelling_is_that_of_python_without_blanks(value: Any) -> None:
    assert json_text(value) == json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    assert load_json(json_text(value)) == value


@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_read_back_the_same(number: float) -> None:
    read = load_json(json_text(number))
    assert read == number
    assert math.copysign(1, read) == math.copysign(1, number)
