import re
from datetime import date, datetime
from typing import Any, Optional

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dtypes import between, oneof, regex, struct
from caraway.dtypes.annotations import dtype_of
from caraway.dtypes.types import DecimalType, EmbeddingType
from caraway.dtypes.values import to_json
from caraway.errors import InvalidInputError
from caraway.expr.functions.json_values import parse_as
from tests.unit.expr.typed_values import POINT, finite, values


@struct
class Point:
    x: int
    y: Optional[float]


DAY = 86_400_000_000


@pytest.mark.parametrize(
    ("annotation", "text", "expected"),
    [
        pytest.param(annotation, text, expected, marks=pytest.mark.spec(f"types:12.2.2:{row}"), id=f"{row}: {text}")
        for row, annotation, text, expected in [
            (1, int, "3", 3),
            (1, int, "-9223372036854775808", -(2**63)),
            (1, int, "1.0", 1),
            (1, int, "1e3", 1000),
            (2, float, "1.5", 1.5),
            (2, float, "3", 3.0),
            (3, bool, "true", True),
            (3, bool, " false ", False),
            (4, str, '"a\\u00e9"', "aé"),
            (4, str, '""', ""),
            (4, str, "12", "12"),
            (4, str, "1.50", "1.5"),
            (5, datetime, '"1970-01-02T00:00:00Z"', DAY),
            (5, datetime, '"1970-01-02 02:00:00.1234567+02:00"', DAY + 123_456),
            (5, datetime, "5", 5),
            (6, date, "19000", 19_000),
            (6, date, '"1970-01-03"', 2),
            (7, list[int], "[1, 2]", [1, 2]),
            (7, list[Optional[int]], "[1, null]", [1, None]),
            (7, list[list[str]], '[["a"], []]', [["a"], []]),
            (8, Point, '{"x": 1, "y": 2, "z": 3}', [1, 2.0]),
            (8, Point, '{"x": 1}', [1, None]),
            (8, Point, '{"x": 1, "y": null}', [1, None]),
            (9, Optional[Point], "null", None),
            (9, Optional[Point], '{"x": 1}', [1, None]),
            (10, between(int, 0, 5), "5", 5),
            (10, oneof(str, ["a"]), '"a"', "a"),
            (10, regex("a+"), '"aa"', "aa"),
            (11, dict[str, int], '{"b": 1, "a": 2}', {"a": 2, "b": 1}),
            (11, dict[str, Optional[Point]], '{"b": null}', {"b": None}),
            (11, DecimalType(2), "1.1", "1.10"),
            (11, DecimalType(2), '"-1.25"', "-1.25"),
            (11, EmbeddingType(2), "[1, 2.5]", [1.0, 2.5]),
        ]
    ],
)
def test_what_is_accepted(annotation: Any, text: str, expected: Any) -> None:
    found = parse_as(dtype_of(annotation))(text)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "text", "part"),
    [
        pytest.param(annotation, text, part, marks=pytest.mark.spec(f"types:12.2.2:{row}"), id=f"{row}: {text}")
        for row, annotation, text, part in [
            (1, int, '"3"', "expected int"),
            (1, int, "1.5", "expected int, found 1.5"),
            (1, int, "true", "expected int, found true"),
            (1, int, "9223372036854775808", "int of 64 bits"),
            (1, int, "01", "holds no int"),
            (1, int, "null", "expected int, found null"),
            (1, int, "", "holds no int"),
            (2, float, "NaN", "holds no float"),
            (2, float, "Infinity", "holds no float"),
            (2, float, '"1.5"', "expected float"),
            (3, bool, "True", "holds no bool"),
            (3, bool, "1", "expected true or false, found 1"),
            (4, str, "abc", "holds no str"),
            (4, str, "", "holds no str"),
            (4, str, "true", "a text in quotes"),
            (5, datetime, '"1970-01-02"', "RFC 3339"),
            (5, datetime, '"1970-01-02T00:00:00"', "RFC 3339"),
            (5, datetime, '"1970-13-02T00:00:00Z"', "holds no datetime"),
            (6, date, '"1970-1-3"', "an ISO date"),
            (6, date, '"1970-02-30"', "holds no date"),
            (7, list[int], "[1, 2", "holds no"),
            (7, list[int], "[1, null]", "element 1: expected int, found null"),
            (7, list[int], "{}", "an array"),
            (8, Point, "{}", "field x: expected int, found null"),
            (8, Point, '{"x": "1"}', "field x: expected int"),
            (8, Point, "[1]", "an object"),
            (8, Point, "null", "an object"),
            (10, between(int, 0, 5), "6", "between"),
            (10, oneof(str, ["a"]), '"b"', "oneof"),
            (10, regex("a+"), '"ab"', "regex"),
            (11, dict[str, int], '{"a": null}', 'key "a": expected int'),
            (11, DecimalType(2), "1.255", "expected Decimal"),
            (11, DecimalType(2), "true", "expected Decimal"),
            (11, EmbeddingType(2), "[1]", "an array of 2 numbers"),
        ]
    ],
)
def test_what_is_refused(annotation: Any, text: str, part: str) -> None:
    with pytest.raises(InvalidInputError, match=part) as caught:
        parse_as(dtype_of(annotation))(text)
    assert str(caught.value).startswith(f"str.parse(): {text!r} holds no ")


@given(value=values(POINT).filter(lambda value: finite(POINT, value)))
def test_what_is_written_as_json_is_parsed_back(value: Any) -> None:
    assert parse_as(POINT)(orjson.dumps(to_json(POINT)(value)).decode()) == value


def test_long_documents_are_cut_in_messages() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_as(dtype_of(int))(f'"{"x" * 1000}"')
    assert len(str(caught.value)) < 400


# The list is never closed.
@given(text=st.text(st.characters(exclude_characters="]"), max_size=20))
def test_a_text_that_is_no_json_fails_as_an_invalid_value(text: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape("holds no List[float]")):
        parse_as(dtype_of(list[float]))(f"[{text}")
